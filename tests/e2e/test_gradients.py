"""Agents that compute gradients, and the server that steps down them: they learn, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.gradients.queue import GradientQueue

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SMALL = (
    "run.stop_at_return=null", "eval.episodes=5", "eval.num_envs=5", "eval.confirm_episodes=0", "eval.interval_s=0.5",
    "checkpoint.interval_updates=20", "learner.combine_gradients=dc",
)  # fmt: skip
#: Mean return of the policy's samples, which begins at about 20.
LEARNED = 60.0


@pytest.mark.parametrize(("servers", "killed"), [(1, ("ps", "agent-1", "ps")), (2, ("ps-1", "ps"))], ids=["one", "two"])
def test_agents_learn_cartpole_and_nothing_is_applied_twice_whoever_is_killed(
    workplace: Workplace, start_redis: Callable[..., Any], servers: int, killed: tuple[str, ...]
) -> None:
    server = start_redis()
    settings = [f"--set={setting}" for setting in (*SMALL, f"parameter_server.servers={servers}")]
    command = workplace.start("run", "cartpole-a3c", "--redis", server.address, *settings)
    run_dir = workplace.run_dir()
    for name in killed:
        workplace.wait_for(lambda: _updates(workplace.status()) >= 40, "updates, and a checkpoint")
        before, pid = workplace.status(), workplace.role_pid(name)
        os.kill(pid, signal.SIGKILL)
        workplace.wait_for(lambda: _goes_on(workplace.status(), name, pid, before), f"the return of {name}")  # noqa: B023
    if servers == 1:
        workplace.wait_for(lambda: (workplace.status()["episode_return"] or 0.0) > LEARNED, "longer episodes")
    command.interrupt()
    assert command.wait() == 130, command.output
    result = json.loads((run_dir / "result.json").read_text())
    versions = [line["version"] for line in _rounds(run_dir)]
    assert versions == sorted(versions)
    assert result["version"] >= versions[-1]
    with RedisClient(server.address, run=run_dir.name) as client:
        counts = GradientQueue(client).run_metrics()
    assert 0 < result["updates"] <= counts["gradients/run_pushed_total"]
    assert "restored" in (run_dir / "logs" / f"{killed[0]}.log").read_text()
    workplace.assert_nothing_is_left()


def _updates(status: dict[str, Any]) -> float:
    return float(status["updates"])


def _goes_on(status: dict[str, Any], name: str, killed: int, before: dict[str, Any]) -> bool:
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
