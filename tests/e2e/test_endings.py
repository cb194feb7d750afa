"""The ways in which a run ends, each tried on a new run and on the same one resumed.

Each leaves a true result, a checkpoint to go on from, and nothing else. docs/endings.md has the table.
"""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from surreal.distributed.telemetry.heartbeats import all_processes
from surreal.run.process.finding import find_run
from surreal.run.process.registry import stop_reason
from tests.e2e.trial import Trial

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: A second process, and `surreal ARGUMENTS` in this one. The second closes the other end of this one's output when a
#: further checkpoint is there.
BESIDE = """
import glob, os, runpy, sys, time

def newest():
    return max(glob.glob("runs/trial/checkpoints/*.safetensors"), default="")

def run(ours, theirs):
    before = newest()
    if os.fork() == 0:
        os.close(ours)
        os.set_blocking(theirs, False)
        while newest() == before:
            time.sleep(0.1)
            try:
                os.read(theirs, 65536)
            except BlockingIOError:
                pass
        os._exit(0)
    os.close(theirs)
    sys.argv[0] = "surreal"
    runpy.run_module("surreal", run_name="__main__", alter_sys=True)
"""
IN_A_TERMINAL = f"""{BESIDE}
import fcntl, pty, termios
theirs, ours = pty.openpty()
fcntl.ioctl(ours, termios.TIOCSCTTY, 0)
for stream in range(3):
    os.dup2(ours, stream)
run(ours, theirs)
"""
INTO_A_PIPE = f"""{BESIDE}
theirs, ours = os.pipe()
os.dup2(ours, 1)
run(ours, theirs)
"""
ON_A_SMALL_DISK = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
os.execv(sys.executable, [sys.executable, "-m", "surreal", *sys.argv[1:]])
"""


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
    command.process.send_signal(signal.SIGTERM)
    assert command.wait() == 143, command.output
    second = trial.result()
    assert (second["status"], second["reason"], second["exit_code"]) == ("interrupted", "interrupted by SIGTERM", 143)
    assert second["run"] == first["run"]
    assert "the replay is empty" in command.output
    assert sorted(aside.iterdir()) == [aside / file.name for file in later]
    assert f"restored {oldest}" in (trial.folder / "logs" / "learner.log").read_text()
    assert "restore: null" in (trial.folder / "app.yaml").read_text()
    trial.assert_left()


def test_a_checkpoint_is_written_when_it_is_asked_for_and_the_run_goes_on(trial: Trial) -> None:
    command = trial.start("checkpoint.interval_updates=null", "checkpoint.checkpoint_time_interval=900")
    workplace = trial.workplace
    workplace.wait_for(workplace.knows, "the run's first process")
    workplace.wait_for(lambda: workplace.status()["updates"] > 0, "an update")
    assert trial.checkpoints() == []
    command.process.send_signal(signal.SIGUSR1)
    workplace.wait_for(trial.checkpoints, "the checkpoint")
    kept = int(trial.checkpoints()[0].stem)
    workplace.wait_for(lambda: workplace.status()["updates"] > kept, "a later update")
    command.process.send_signal(signal.SIGTERM)
    assert command.wait() == 143, command.output
    assert [int(file.stem) > kept for file in trial.checkpoints()] == [False, True]
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
        assert other.wait() == 3, other.output
        assert message in other.output
    trial.workplace.wait_for(lambda: "standing by: agent-0 of run" in second_agent.output, "the stand-by")
    assert {name: (trial.folder / name).read_bytes() for name in written} == before
    with find_run(None, address=None, run_dir=trial.folder) as client:
        assert [each.name for each in all_processes(client)].count("agent-0") == 1
    second_agent.process.terminate()
    assert second_agent.wait() == 143
    for is_resumed in (False, True):
        if is_resumed:
            command = trial.start(is_resumed=True)
            trial.wait_until_it_learns(command, trial.updates())
        for stopping in [start("stop", "--run-dir", "runs/trial") for _ in range(2)]:
            assert stopping.wait() == 0, stopping.output
        assert command.wait() == 0, command.output
        assert (trial.result()["reason"], trial.result()["exit_code"]) == ("surreal stop", 0)
        trial.assert_left()


def _do_nothing(trial: Trial, command: Command) -> None:
    """The run ends by itself."""


def _signal(trial: Trial, command: Command, *, number: signal.Signals = signal.SIGINT) -> None:
    command.process.send_signal(number)


def _signal_twice(trial: Trial, command: Command) -> None:
    _signal(trial, command)
    trial.workplace.wait_for(lambda: _stop_reason(trial), "the drain")
    assert command.process.poll() is None
    _signal(trial, command)


def _signal_until_it_ends(trial: Trial, command: Command) -> None:
    """Of signals that come close together, a process may see but one."""
    _signal_twice(trial, command)
    while command.process.poll() is None:
        _signal(trial, command)
        with suppress(subprocess.TimeoutExpired):
            command.process.wait(0.1)


def _break_the_environment(trial: Trial, command: Command) -> None:
    broken = trial.folder.parent / "broken"
    broken.touch()
    command.wait()
    broken.unlink()


def _fill_the_disk(trial: Trial, command: Command) -> None:
    """No file of the learner may grow as large as its checkpoints are."""
    size = trial.checkpoints()[-1].stat().st_size - 1
    resource.prlimit(trial.workplace.role_pid("learner"), resource.RLIMIT_FSIZE, (size, size))


class Way(NamedTuple):
    """One way to end a run that learns."""

    name: str
    status: str
    code: int
    reason: str  #: how the reason begins
    end: Callable[[Trial, Command], None] = _do_nothing
    overrides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  #: of the new run, and of the resumed one
    environment: tuple[tuple[str, str], ...] = ()
    program: str = ""
    is_last: bool = True  #: whether the newest checkpoint is of the last update


HANGING_AGENT = (("SLEEP_AT_END_S", "600"),)
WAYS = (
    Way("SIGINT", "interrupted", 130, "interrupted by SIGINT", _signal),
    Way(
        *("SIGINT twice", "interrupted", 130, "interrupted by SIGINT"),
        end=_signal_twice,
        environment=HANGING_AGENT,
    ),
    Way(
        *("SIGINT three times", "interrupted", 130, "interrupted by SIGINT three times: its processes were killed"),
        end=_signal_until_it_ends,
        environment=HANGING_AGENT,
        is_last=False,
    ),
    Way("SIGHUP", "interrupted", 129, "interrupted by SIGHUP", partial(_signal, number=signal.SIGHUP)),
    Way("a closed terminal", "interrupted", 129, "i", program=IN_A_TERMINAL),  # by SIGHUP, or its output was closed
    Way("a closed pipe", "interrupted", 129, "its output was closed", program=INTO_A_PIPE),
    Way(
        *("a limit", "finished", 0, "max_env_steps"),
        overrides=(("run.max_env_steps=300",), ("run.max_env_steps=500",)),
    ),
    Way(
        *("a goal", "finished", 0, "stop_at_return: mean return"),
        overrides=(("run.stop_at_return=1", "eval.enabled=true"),) * 2,
    ),
    Way("a child that fails", "failed", 1, "agent-0 failed: OverflowError: the cart left", _break_the_environment),
    Way("a full disk", "failed", 1, "learner failed: ", _fill_the_disk, is_last=False),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_each_way_to_end_twice(trial: Trial, way: Way) -> None:
    run = ""
    for is_resumed in (False, True):
        before = trial.updates()
        overrides, environment = way.overrides[is_resumed], dict(way.environment)
        command = trial.start(*overrides, is_resumed=is_resumed, program=way.program, **environment)
        if way.end is not _do_nothing:
            trial.wait_until_it_learns(command, before)
        way.end(trial, command)
        assert command.wait() == way.code, command.output
        assert "Traceback" not in command.output
        assert "Exception ignored" not in command.output
        result = trial.result()
        assert (result["status"], result["exit_code"]) == (way.status, way.code)
        assert result["reason"].startswith(way.reason)
        # A resumed run's first evaluation may reach the goal before its first update.
        assert trial.updates() > before or (is_resumed and way.name == "a goal")
        assert result["run"] == (run or result["run"])
        run = result["run"]
        trial.assert_left(is_last=way.is_last)


def test_a_launcher_that_is_killed_twice_leaves_what_goes_on(trial: Trial) -> None:
    for is_resumed in (False, True):
        before = trial.updates()
        command = trial.start(is_resumed=is_resumed)
        trial.wait_until_it_learns(command, before)
        command.process.kill()
        command.wait()
        trial.workplace.wait_until_nothing_runs()
        assert (trial.result()["status"], trial.result()["exit_code"]) == ("running", None)
        assert trial.updates() > before
        trial.assert_whole()


def test_a_disk_that_is_full_from_the_start_ends_the_run_with_the_reason(trial: Trial) -> None:
    # No file may grow beyond a size, of the launcher and of all that it starts: the first checkpoint does, and no log.
    arguments = [*trial.arguments("model.args.hidden_sizes=[4096]"), "--no-progress"]
    command = trial.workplace.start_python("-c", ON_A_SMALL_DISK, *arguments)
    assert command.wait() == 1, command.output
    result = trial.result()
    assert f"run {result['run']} in {trial.folder}" in command.output  # also without progress
    assert "env steps" not in command.output
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert "learner failed: checkpoint" in result["reason"]
    assert "could not be written: [Errno 27] File too large" in result["reason"]
    assert trial.checkpoints() == []
    trial.assert_left(is_last=False)


def _stop_reason(trial: Trial) -> str:
    with find_run(None, address=None, run_dir=trial.folder) as client:
        return stop_reason(client)
