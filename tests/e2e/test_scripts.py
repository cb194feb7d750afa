"""The scripts: the plain-API examples in either start order, and the role scripts on a Redis of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize("order", [("agent", "learner"), ("learner", "agent")])
def test_plain_examples_work_in_either_order(
    workplace: Workplace, redis_server: Any, run_id: str, order: tuple[str, str]
) -> None:
    arguments = ["--redis", redis_server.address, "--run", run_id, "--steps", "4000"]
    first = workplace.start_python(str(SCRIPTS / f"run_cartpole_{order[0]}.py"), *arguments)
    # Not at once: the first one has to find out that it is alone.
    workplace.wait_for(lambda: any(run_id in key for key in _keys(redis_server)), "its first key")
    second = workplace.start_python(str(SCRIPTS / f"run_cartpole_{order[1]}.py"), *arguments)
    assert first.wait(90.0) == 0, first.output
    assert second.wait(90.0) == 0, second.output
    learner = first if order[0] == "learner" else second
    agent = first if order[0] == "agent" else second
    assert "update 0: version 1" in learner.output
    assert "mean return" in agent.output


def test_role_scripts_join_one_run_from_several_folders(
    workplace: Workplace, start_redis: Callable[..., Any], tmp_path: Path
) -> None:
    server = start_redis(port=0, password="our secret/+")
    environment = {"SURREAL_REDIS": f"redis://:our%20secret%2F%2B@127.0.0.1:{server.port}"}
    limits = ["--set", "run.max_env_steps=4000", "--set", "eval.episodes=2", "--set", "eval.confirm_episodes=0"]
    script = {role: str(SCRIPTS / f"run_{role}.py") for role in ("agent", "learner", "eval")}
    learner = workplace.start_python(
        script["learner"], "cartpole-dqn", "--run", "shared", "--run-dir", "here", *limits, **environment
    )
    workplace.wait_for(lambda: workplace.run("status", "shared", **environment)[0] == 0, "the run")
    # The others know nothing but the run's name and its Redis.
    others = [
        workplace.start_python(script[role], "--run", "shared", "--run-dir", "there", "--index", index, **environment)
        for role, index in (("agent", "0"), ("agent", "1"), ("eval", "0"))
    ]
    for command in (learner, *others):
        assert command.wait(90.0) == 0, command.output
        assert "our secret" not in command.output
    logs = {path.name for path in (tmp_path / "here" / "logs").iterdir()}
    assert {"agent-0.log", "agent-1.log", "eval.log", "learner.log"} <= logs
    assert (tmp_path / "there" / "eval" / "best.safetensors").exists()
    code, output = workplace.run("stop", "shared", "--delete", **environment)
    assert code == 0, output
    assert [key for key in _keys(server) if "shared" in key] == []


def test_every_script_explains_itself() -> None:
    for path in SCRIPTS.glob("run_*.py"):
        shown = subprocess.run([sys.executable, str(path), "--help"], capture_output=True, text=True, check=True)
        assert shown.stdout.startswith("usage:")


def _keys(server: Any) -> list[str]:
    with server.client() as client:
        return [key.decode() for key in client.keys("*")]
