"""`surreal run`: from start to result, drained, resumed, and with processes that die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def result_of(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return found


def rounds_of(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "round"]


def test_run_trains_keeps_score_and_leaves_nothing_behind(workplace: Workplace) -> None:
    command = workplace.start(
        "run", "cartpole-dqn", *workplace.fast_eval, "--set", "run.max_env_steps=5000", "--seed", "3"
    )
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "redis.address").exists, "the address")
    status = workplace.wait_for(
        lambda: found if len((found := workplace.status())["processes"]) == 5 else None, "all five processes"
    )
    assert status["run"] == run_dir.name
    assert command.wait() == 0, command.output
    assert f"results in {run_dir}" in command.output
    result = result_of(run_dir)
    assert result["status"] == "finished"
    assert result["reason"].startswith("max_env_steps")
    assert 5000 <= result["env_steps"] < 7000
    assert result["updates"] > 0
    assert result["best"]["mean_return"] == max(line["mean_return"] for line in rounds_of(run_dir))
    for name in ("agent-0", "agent-1", "learner", "eval", "launcher"):
        assert (run_dir / "logs" / f"{name}.log").stat().st_size > 0
    assert "learner/loss" in (run_dir / "metrics.jsonl").read_text()
    assert len(list((run_dir / "checkpoints").glob("*.safetensors"))) == 1
    assert not (run_dir / "redis.address").exists()
    workplace.assert_nothing_is_left()
    code, output = workplace.run("play", str(run_dir / "eval" / "best.safetensors"), "--episodes", "2", "--seed", "1")
    assert (code, output.count("episode ")) == (0, 2)


def test_ctrl_c_drains_and_resume_goes_on(workplace: Workplace) -> None:
    command = workplace.start("run", "cartpole-dqn", *workplace.fast_eval, *workplace.endless)
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: list(run_dir.glob("eval/best.json")), "the first round")
    workplace.wait_for(lambda: workplace.status()["updates"] > 100, "learning")
    command.interrupt()
    assert command.wait(60.0) == 0, command.output
    first = result_of(run_dir)
    assert first["status"] == "interrupted"
    workplace.assert_nothing_is_left()

    code, output = workplace.run("run", "cartpole-dqn", "--run", run_dir.name)
    assert (code, "holds a run already" in output) == (1, True)

    limit = first["env_steps"] + 3000
    code, output = workplace.run("run", "--resume", "--run-dir", str(run_dir), "--set", f"run.max_env_steps={limit}")
    assert code == 0, output
    second = result_of(run_dir)
    assert second["updates"] > first["updates"]
    assert second["version"] > first["version"]
    assert [line["round"] for line in rounds_of(run_dir)] == list(range(len(rounds_of(run_dir))))


def test_every_process_may_be_killed(workplace: Workplace) -> None:
    command = workplace.start(
        "run", "cartpole-dqn", *workplace.fast_eval, *workplace.endless, "--set", "checkpoint.interval_updates=50"
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: list(run_dir.glob("eval/best.json")), "the first round")
    for name in ("agent-0", "learner", "eval"):
        before = workplace.status()
        killed = workplace.role_pid(name)
        os.kill(killed, signal.SIGKILL)

        def has_come_back(name: str = name, killed: int = killed, before: dict[str, Any] = before) -> bool:
            now = workplace.status()
            assert now["version"] >= before["version"]
            assert now["env_steps"] >= before["env_steps"]
            is_new = any(entry["name"] == name and entry["pid"] != killed for entry in now["processes"])
            return is_new and now["env_steps"] > before["env_steps"] and now["version"] > before["version"]

        workplace.wait_for(has_come_back, f"the return of {name}")
    command.interrupt()
    assert command.wait(60.0) == 0, command.output
    assert result_of(run_dir)["restarts"] == 3
    assert "restored" in (run_dir / "logs" / "learner.log").read_text()
    versions = [line["version"] for line in rounds_of(run_dir)]
    assert versions == sorted(versions)


def test_children_end_with_a_launcher_that_is_killed(workplace: Workplace) -> None:
    command = workplace.start("run", "cartpole-dqn", *workplace.endless)
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "redis.address").exists, "the address")
    workplace.wait_for(lambda: len(workplace.status()["processes"]) == 5, "all five processes")
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    workplace.wait_for(lambda: workplace.processes() == [], "the end of all processes", 40.0)


SLOW_TO_CLOSE = """
import time
from surreal.agent import QAgent

class Sleeper(QAgent):
    def close(self):
        time.sleep(600)
"""


def test_second_ctrl_c_ends_at_once(workplace: Workplace) -> None:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "sleepers.py").write_text(SLOW_TO_CLOSE)
    (workplace.folder / "runs" / "slow.yaml").write_text(
        "env: {id: CartPole-v1, num_envs: 2}\nagent: {class: sleepers.Sleeper, count: 1}\neval: {enabled: false}\n"
    )
    command = workplace.start("run", "runs/slow.yaml")
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "redis.address").exists, "the address")
    workplace.wait_for(lambda: workplace.status()["env_steps"] > 0, "acting")
    command.interrupt()
    workplace.wait_for(lambda: workplace.status()["stop_reason"], "the drain")
    assert command.process.poll() is None
    command.interrupt()
    assert command.wait(20.0) == 1
    workplace.assert_nothing_is_left()
