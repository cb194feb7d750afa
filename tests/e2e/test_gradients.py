"""Agents that compute gradients, and the server that steps down them: they learn, whoever is killed meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from surreal.config.preset_files import preset_path
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.gradients.queue import GradientQueue
from surreal.distributed.parameters.parts import part_keys
from surreal.distributed.parameters.published import PublishedReader

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: Deaths of server, agent and Redis in turn; `make kills` asks for 20, after which CartPole is to be solved.
KILLS = int(os.environ.get("SURREAL_TEST_KILLS", "3"))
#: Mean return of the policy's samples, which begins at about 20, or in a long test of an evaluation.
LEARNED, SOLVED = 60.0, 500.0

SMALL = (
    "run.stop_at_return=null", "eval.confirm_episodes=0", "eval.interval_s=0.5", "checkpoint.interval_updates=20",
)  # fmt: skip

#: A learner that writes down the gradients that it computes, at agents, and those that it applies, at the server.
PARTS = """
import hashlib, os
from surreal.learner import A2CLearner

def note(gradients):
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(gradients.tensors):
        digest.update(gradients.tensors[name].contiguous().numpy().tobytes())
    with open(f"{os.environ['NOTES']}-{os.getpid()}", "a") as file:
        file.write(digest.hexdigest() + "\\n")
    return gradients

class Noting(A2CLearner):
    def gradients(self, *arguments, **options):
        return note(super().gradients(*arguments, **options))

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        step = self.stepper.step
        self.stepper.step = lambda gradients: step([note(each) for each in gradients])
"""


def test_agents_learn_and_no_gradient_is_applied_twice_whoever_is_killed(
    workplace: Workplace, start_redis: Callable[..., Any]
) -> None:
    server = start_redis(appendonly=True)
    notes = workplace.folder / "runs" / "notes"
    notes.parent.mkdir()
    (notes.parent / "noting.py").write_text(PARTS)
    config = yaml.safe_load(preset_path("cartpole-a3c").read_text())
    config["learner"]["class"] = "noting.Noting"
    config["model"]["args"] |= {"normalize_obs": True, "normalize_rewards": True}
    (notes.parent / "kills.yaml").write_text(yaml.safe_dump(config))
    # A rate that is not annealed by env steps, of which there may be any number.
    endless = "run.max_env_steps=null", "learner.args.use_linear_schedule=false"
    settings = (*SMALL, *endless, f"run.restart_limit={KILLS}")
    sets = (f"--set={setting}" for setting in settings)
    command = workplace.start("run", "runs/kills.yaml", "--redis", server.address, *sets, NOTES=str(notes))
    run_dir = workplace.run_dir()
    workplace.wait_for(workplace.knows, "the run's first process")
    servers = set()
    for name in itertools.islice(itertools.cycle(("ps", "agent-1", "redis")), KILLS):
        workplace.wait_for(lambda: _updates(workplace.status()) >= 40, "updates, and a checkpoint")
        before = _status(workplace, server.address)
        servers.add(workplace.role_pid("ps"))
        if name == "redis":
            server.kill()
            server.start()
            killed = 0
            workplace.wait_for(workplace.knows, "the run's return")
        else:
            killed = workplace.role_pid(name)
            os.kill(killed, signal.SIGKILL)
        alive = "ps" if name == "redis" else name
        workplace.wait_for(
            lambda: _goes_on(_status(workplace, server.address), alive, killed, before),  # noqa: B023
            f"the return of {name}",
        )
    servers.add(workplace.role_pid("ps"))
    if KILLS < 20:
        workplace.wait_for(lambda: (workplace.status()["episode_return"] or 0.0) > LEARNED, "longer episodes")
    else:
        last = workplace.status()["version"]
        workplace.wait_for(lambda: _is_solved(run_dir, last), "a solved CartPole", timeout_s=400.0)
    _end(command, run_dir)
    assert "restored" in (run_dir / "logs" / "ps.log").read_text()
    workplace.assert_nothing_is_left()
    _assert_applied_once(notes, servers)


def _end(command: Command, run_dir: Path) -> int:
    """Interrupt the run, whose versions have only risen; returns its updates."""
    command.interrupt()
    assert command.wait() == 130, command.output
    result = json.loads((run_dir / "result.json").read_text())
    versions = [line["version"] for line in _rounds(run_dir)]
    assert versions == sorted(versions)
    assert result["version"] >= versions[-1]
    return int(result["updates"])


def _assert_applied_once(notes: Path, servers: set[int]) -> None:
    """A gradient is known by its digest: no two of them are equal to the bit."""
    applied, pushed = list[str](), set[str]()
    for path in notes.parent.glob(f"{notes.name}-*"):
        # Whoever was killed may have left half a line.
        lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if int(path.name.rpartition("-")[2]) in servers:
            applied += lines
        else:
            pushed.update(lines)
    assert len(applied) > 100
    assert len(applied) == len(set(applied))
    assert set(applied) <= pushed


def test_two_servers_go_on_in_step_when_either_is_killed(workplace: Workplace, start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    settings = (*SMALL, "learner.combine_gradients=dc", "parameter_server.servers=2")
    command = workplace.start(
        "run", "cartpole-a3c", "--redis", server.address, *(f"--set={setting}" for setting in settings)
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(workplace.knows, "the run's first process")
    for name in ("ps-1", "ps"):
        workplace.wait_for(lambda: _updates(workplace.status()) >= 40, "updates, and a checkpoint")
        before, pid = _status(workplace, server.address, 2), workplace.role_pid(name)
        os.kill(pid, signal.SIGKILL)
        workplace.wait_for(
            lambda: _goes_on(_status(workplace, server.address, 2), name, pid, before),  # noqa: B023
            f"the return of {name}",
        )
    updates = _end(command, run_dir)
    with RedisClient(server.address, run=run_dir.name) as client:
        counts = GradientQueue(client).run_metrics()
    assert 0 < updates <= counts["gradients/run_pushed_total"]
    assert "restored" in (run_dir / "logs" / "ps-1.log").read_text()
    workplace.assert_nothing_is_left()


def _is_solved(run_dir: Path, last: int) -> bool:
    """Whether a round of parameters that are newer than the last death has the highest return there is."""
    return any(line["version"] > last and line["mean_return"] >= SOLVED for line in _rounds(run_dir))


def _updates(status: dict[str, Any]) -> float:
    return float(status["updates"])


def _status(workplace: Workplace, address: str, servers: int = 1) -> dict[str, Any]:
    """The run's status with the version that agents may have: a server may die before it tells them its newest."""
    status = workplace.status()
    with RedisClient(address, run=status["run"]) as client:
        published = PublishedReader(client, part_keys(client, "default", servers)).state()
    return status | {"version": published.version}


def _goes_on(status: dict[str, Any], name: str, killed: int, before: dict[str, Any]) -> bool:
    if not status["version"]:
        return False  # two servers have none in common while one of them is away
    assert status["version"] >= before["version"]
    assert status["env_steps"] >= before["env_steps"]
    process = next((entry for entry in status["processes"] if entry["name"] == name), None)
    if process is None or process["pid"] == killed:
        return False
    return bool(status["version"] > before["version"] + 20 and status["env_steps"] > before["env_steps"])


def _rounds(run_dir: Path) -> Iterator[dict[str, Any]]:
    for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "round":
            yield entry
