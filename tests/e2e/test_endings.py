"""The ways in which a run ends: each leaves a true result, a checkpoint to go on from, and nothing else.

docs/endings.md has the table.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from surreal.checkpoint import load_checkpoint
from surreal.distributed.telemetry.heartbeats import all_processes
from surreal.main.commands.status import find_run
from surreal.main.process.registry import stop_reason
from surreal.main.process.run_folder import newest_checkpoint

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: Small and slow, so that several of them leave each other time.
SETTINGS = """
name: tiny
env: {id: "slow_env:Slow-v0", num_envs: 1}
model: {args: {hidden_sizes: [8]}}
agent: {class: slow_env.Sleeper, count: 1}
learner: {batch_size: 8}
replay: {capacity: 1000, start_size: 20, samples_per_insert: 8}
sender: {chunk_steps: 8, max_delay_s: 0.1}
eval: {enabled: false, interval_s: 0.1, episodes: 1, confirm_episodes: 0}
checkpoint: {interval_updates: 10}
"""
ENVIRONMENT = """
import os, time
import gymnasium
from surreal.agent import QAgent
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Slow(CartPoleEnv):
    def step(self, action):
        time.sleep(0.005)
        return super().step(action)

gymnasium.register("Slow-v0", Slow)

class Sleeper(QAgent):
    def close(self):
        time.sleep(float(os.environ.get("SLEEP_AT_END_S", "0")))
"""

#: `surreal` in a terminal of its own, which is closed when a checkpoint is there.
IN_A_TERMINAL = """
import glob, os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-m", "surreal.cli", *sys.argv[1:]])
while not glob.glob("runs/trial/checkpoints/*.safetensors"):
    os.read(terminal, 65536)
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
#: `surreal ARGUMENTS | head -1`, with the exit code of the first.
INTO_A_PIPE = """
import subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "surreal.cli", *sys.argv[1:]], stdout=subprocess.PIPE)
for line in process.stdout:
    print(line)
    if b"updates" in line:
        break
process.stdout.close()
sys.exit(process.wait())
"""
ON_A_SMALL_DISK = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
os.execv(sys.executable, [sys.executable, "-m", "surreal.cli", *sys.argv[1:]])
"""


class Trial:
    """One run of the tiny configuration."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        runs = workplace.folder / "runs"
        runs.mkdir()
        (runs / "slow_env.py").write_text(ENVIRONMENT)
        (runs / "tiny.yaml").write_text(SETTINGS)
        self.folder = runs / "trial"

    def arguments(self, *overrides: str) -> list[str]:
        """Of the command that begins the run."""
        return ["run", "runs/tiny.yaml", "--run-dir", "runs/trial", *(f"--set={override}" for override in overrides)]

    def start(self, *overrides: str, is_resumed: bool = False, **environment: str) -> Command:
        resume = ["--resume"] if is_resumed else []
        return self.workplace.start(*self.arguments(*overrides), *resume, **environment)

    def wait_until_it_learns(self, command: Command, updates: int = 0) -> None:
        """Wait for a checkpoint of more updates."""

        def has_learned() -> bool:
            assert command.process.poll() is None, command.output
            return newest_checkpoint(self.folder) > updates

        self.workplace.wait_for(has_learned, "a checkpoint")

    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("*.safetensors"))

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def contents(self) -> dict[str, bytes]:
        """Every file in the folder."""
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def assert_left(self, *, is_last: bool = True) -> None:
        """What is left is whole: the checkpoint of the last update, no temporary file, no address, no process."""
        if is_last:
            newest = load_checkpoint(self.checkpoints()[-1])
            assert newest.metadata["state"]["updates"] == self.result()["updates"] > 0
        for checkpoint in self.checkpoints():
            load_checkpoint(checkpoint)
        assert not (self.folder / "redis.address").exists()
        assert [path for path in self.folder.rglob("*") if path.name.endswith(".tmp")] == []
        self.workplace.assert_nothing_is_left()


@pytest.fixture
def trial(workplace: Workplace) -> Trial:
    return Trial(workplace)


def test_a_signal_drains_and_the_run_goes_on_from_where_it_is_told(trial: Trial) -> None:
    command = trial.start()
    trial.wait_until_it_learns(command, 20)
    command.process.send_signal(signal.SIGTERM)
    assert command.wait() == 143, command.output
    first = trial.result()
    assert (first["status"], first["reason"], first["exit_code"]) == ("interrupted", "interrupted by SIGTERM", 143)
    trial.assert_left()

    # What is refused changes nothing.
    before = trial.contents()
    command = trial.start("model.args.hidden_sizes=[32]", is_resumed=True)
    assert command.wait() == 2, command.output
    assert "does not fit the configuration: the checkpoint is of another model" in command.output
    assert trial.contents() == before

    oldest, *later = trial.checkpoints()
    command = trial.start(f"checkpoint.restore={oldest.name}", is_resumed=True)
    aside = oldest.parent / "set-aside-1"
    trial.workplace.wait_for(aside.exists, "the later checkpoints' own folder")
    trial.wait_until_it_learns(command, int(oldest.stem))
    command.process.send_signal(signal.SIGHUP)
    assert command.wait() == 129, command.output
    second = trial.result()
    assert (second["status"], second["reason"], second["exit_code"]) == ("interrupted", "interrupted by SIGHUP", 129)
    assert second["run"] == first["run"]
    assert "the replay is empty" in command.output
    assert sorted(aside.iterdir()) == [aside / file.name for file in later]
    assert f"restored {oldest}" in (trial.folder / "logs" / "learner.log").read_text()
    assert "restore: null" in (trial.folder / "app.yaml").read_text()
    trial.assert_left()


def test_one_folder_twice_at_once(trial: Trial) -> None:
    command = trial.start()
    trial.wait_until_it_learns(command)
    written = ("app.yaml", "run.id", "run.lock", "result.json", "redis.address")
    before = {name: (trial.folder / name).read_bytes() for name in written}
    address, run = before["redis.address"].decode().split()
    place = ("--run-dir", "runs/trial", "--redis", address)
    start = trial.workplace.start
    refused = [
        (trial.start(is_resumed=True), f"belongs to a run that is alive: process {command.pid} on"),
        (start("learner", "runs/tiny.yaml", "--run", "other", *place), "belongs to a run that is alive"),
    ]
    second_agent = start("agent", "--run", run, "--index", "0", *place)
    for other, message in refused:
        assert other.wait() == 1, other.output
        assert message in other.output
    trial.workplace.wait_for(lambda: "standing by: agent-0 of run" in second_agent.output, "the stand-by")
    assert {name: (trial.folder / name).read_bytes() for name in written} == before
    with find_run(None, address=None, run_dir=trial.folder) as client:
        assert [each.name for each in all_processes(client)].count("agent-0") == 1
    second_agent.process.terminate()
    assert second_agent.wait() == 143
    for stopping in [start("stop", "--run-dir", "runs/trial") for _ in range(2)]:
        assert stopping.wait() == 0, stopping.output
    assert command.wait() == 0, command.output
    assert trial.result()["reason"] == "surreal stop"
    trial.assert_left()


@pytest.mark.parametrize(("count", "reason"), [(1, ""), (2, ""), (3, " three times: its processes were killed")])
def test_one_ctrl_c_drains_a_second_hurries_and_a_third_kills(trial: Trial, count: int, reason: str) -> None:
    command = trial.start(SLEEP_AT_END_S="0" if count == 1 else "600")
    trial.wait_until_it_learns(command)
    command.interrupt()
    for _ in range(count - 1):
        trial.workplace.wait_for(lambda: _stop_reason(trial), "the drain")
        assert command.process.poll() is None
        command.interrupt()
    assert command.wait() == 130, command.output
    result = trial.result()
    assert (result["status"], result["exit_code"]) == ("interrupted", 130)
    assert result["reason"] == f"interrupted by SIGINT{reason}"
    assert "Traceback" not in command.output
    trial.assert_left(is_last=count < 3)


def test_a_terminal_that_is_closed_drains(trial: Trial) -> None:
    command = trial.workplace.start_python("-c", IN_A_TERMINAL, *trial.arguments())
    assert command.wait() == 129, command.output
    assert trial.result()["reason"] in ("interrupted by SIGHUP", "its output was closed")
    trial.assert_left()


def test_a_pipe_that_nobody_reads_any_more_drains(trial: Trial) -> None:
    command = trial.workplace.start_python("-c", INTO_A_PIPE, *trial.arguments())
    assert command.wait() == 129, command.output
    assert "run tiny" in command.output
    assert "Exception ignored" not in command.output
    assert "Traceback" not in command.output
    assert trial.result()["reason"] == "its output was closed"
    trial.assert_left()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["run.max_env_steps=300"], "max_env_steps"),
        (["run.stop_at_return=1", "eval.enabled=true"], "stop_at_return"),
    ],
)
def test_a_limit_or_a_goal_is_a_success(trial: Trial, overrides: list[str], reason: str) -> None:
    command = trial.start(*overrides)
    assert command.wait() == 0, command.output
    result = trial.result()
    assert (result["status"], result["exit_code"]) == ("finished", 0)
    assert result["reason"].startswith(reason)
    trial.assert_left()


def test_a_full_disk_ends_the_run_with_the_reason(trial: Trial) -> None:
    # No file may grow beyond a size, of the launcher and of all that it starts: the first checkpoint does, and no log.
    command = trial.workplace.start_python("-c", ON_A_SMALL_DISK, *trial.arguments("model.args.hidden_sizes=[4096]"))
    assert command.wait() == 1, command.output
    result = trial.result()
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert "learner failed: checkpoint" in result["reason"]
    assert "could not be written: [Errno 27] File too large" in result["reason"]
    assert trial.checkpoints() == []
    trial.assert_left(is_last=False)


def _stop_reason(trial: Trial) -> str:
    with find_run(None, address=None, run_dir=trial.folder) as client:
        return stop_reason(client)
