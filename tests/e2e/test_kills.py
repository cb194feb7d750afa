"""Every process of a run is killed once. What was acknowledged is there, once; the run goes on; versions only rise.

Each observation says which process made it and the how manieth it is, so a lost or repeated step would show.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.numbered_steps import assert_no_gap, read_numbered_steps

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

NUMBERED = Path(__file__).with_name("numbered.py")

#: The replay holds the whole run, so nothing is evicted and everything can be counted.
SETTINGS = """
env: {id: "numbered:Numbered-v0", num_envs: 3}
model: {args: {hidden_sizes: [8]}}
agent: {count: 2, exploration: 0.5}
learner: {batch_size: 32, n_step: 3}
replay: {capacity: 1000000, start_size: 200, samples_per_insert: 8}
sender: {chunk_steps: 24, max_delay_s: 0.2}
broadcast: {interval_updates: 20}
checkpoint: {interval_updates: 200}
eval: {episodes: 3, confirm_episodes: 0, interval_s: 0.5}
"""


@pytest.fixture
def numbered(workplace: Workplace) -> str:
    (workplace.folder / "runs").mkdir()
    shutil.copy(NUMBERED, workplace.folder / "runs" / "numbered.py")
    (workplace.folder / "runs" / "numbered.yaml").write_text(SETTINGS)
    return "runs/numbered.yaml"


def test_what_was_acknowledged_is_there_once_whoever_is_killed(
    workplace: Workplace, numbered: str, start_redis: Callable[..., Any]
) -> None:
    server = start_redis()
    command = workplace.start("run", numbered, "--redis", server.address)
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "eval" / "best.json").exists, "the first round")
    workplace.wait_for(lambda: sum(map(_has_sent, _agents(workplace.status()))) == 2, "experience of both agents")
    workplace.wait_for(lambda: list((run_dir / "checkpoints").glob("*.safetensors")), "a checkpoint")
    for name in ("agent-0", "learner", "eval", "agent-1", "learner"):
        before = workplace.wait_for(lambda: _whole(workplace.status()), "the learner's metrics")
        killed = workplace.role_pid(name)
        os.kill(killed, signal.SIGKILL)
        workplace.wait_for(lambda: _has_come_back(workplace, name, killed, before), f"the return of {name}")  # noqa: B023
    log = run_dir / "logs" / "learner.log"
    workplace.wait_for(lambda: log.read_text().count("restored") == 2, "the word of both learners")
    first, rounds = workplace.status(), rounds_of(run_dir)

    # The launcher last: its children end with it.
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    workplace.wait_until_nothing_runs()
    _assert_every_step_is_there_once(server.address, run_dir.name, at_least=first["env_steps"])

    limit = first["env_steps"] + 2000
    code, output = workplace.run(
        *("run", "--resume", "--run-dir", str(run_dir), "--redis", server.address),
        *("--set", f"run.max_env_steps={limit}"),
    )
    assert code == 0, output
    second = json.loads((run_dir / "result.json").read_text())
    assert second["updates"] > first["updates"]
    assert second["version"] > first["version"]
    assert limit <= second["env_steps"] < limit + 2000
    lines = rounds_of(run_dir)
    assert len(lines) > len(rounds)
    assert [line["round"] for line in lines] == list(range(len(lines)))
    assert [line["version"] for line in lines] == sorted(line["version"] for line in lines)
    workplace.assert_nothing_is_left()


def rounds_of(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "round"]


def _has_come_back(workplace: Workplace, name: str, killed: int, before: dict[str, Any]) -> bool:
    now = workplace.status()
    assert now["version"] >= before["version"]
    assert now["env_steps"] >= before["env_steps"]
    process = next((entry for entry in now["processes"] if entry["name"] == name), None)
    if process is None or process["pid"] == killed or _whole(now) is None:
        return False
    if process["role"] == "agent" and not _has_sent(process):
        return False
    is_whole = _learner(now)["replay/transitions_count"] >= _learner(before)["replay/transitions_count"]
    return is_whole and now["env_steps"] > before["env_steps"] and now["version"] > before["version"]


def _agents(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in status["processes"] if entry["role"] == "agent"]


def _has_sent(agent: dict[str, Any]) -> bool:
    return float(agent["metrics"].get("sender/steps_total", 0.0)) > 0.0


def _whole(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if "replay/transitions_count" in _learner(status) else None


def _learner(status: dict[str, Any]) -> dict[str, float]:
    return next((entry["metrics"] for entry in status["processes"] if entry["name"] == "learner"), {})


def _assert_every_step_is_there_once(address: str, run: str, *, at_least: int) -> None:
    """Read the whole stream: of each process and environment, the steps from the first one on, without a gap."""
    found = read_numbered_steps(address, run)
    assert sum(len(counts) for environments in found.values() for counts in environments.values()) >= at_least
    assert len(found) == 4  # two agents, each killed and started again
    assert_no_gap(found)
