"""Redis dies in the middle of a run and comes back, once empty and once with its data; the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


@pytest.mark.parametrize("appendonly", [False, True], ids=["empty", "with its data"])
def test_run_goes_on_when_redis_comes_back(
    workplace: Workplace, start_redis: Callable[..., Any], appendonly: bool
) -> None:
    server = start_redis(appendonly=appendonly)
    options = (*workplace.endless, *workplace.fast_eval, *workplace.one_agent)
    command = workplace.start("run", "cartpole-dqn", "--redis", server.address, *options)
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "eval" / "best.json").exists, "the first round")
    workplace.wait_for(lambda: workplace.knows() and workplace.status()["updates"] > 100, "learning")
    server.kill()
    server.start()

    def has_gone_on() -> bool:
        now = workplace.status()
        lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
        return _is_alive(now) and lines[-1]["version"] > before["version"] and now["env_steps"] > before["env_steps"]

    workplace.wait_for(workplace.knows, "the run's return")
    before = workplace.wait_for(lambda: status if _is_alive(status := workplace.status()) else None, "four heartbeats")
    workplace.wait_for(has_gone_on, "going on")
    command.interrupt()
    assert command.wait() == 130, command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["status"], result["restarts"]) == ("interrupted", 0)
    workplace.assert_nothing_is_left()
    _assert_versions_rise(run_dir)


def _is_alive(status: dict[str, Any]) -> bool:
    return len([process for process in status["processes"] if process["is_alive"]]) == 4


def _assert_versions_rise(run_dir: Path) -> None:
    lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
    versions = [line["version"] for line in lines if line["kind"] == "round"]
    assert versions == sorted(versions)
