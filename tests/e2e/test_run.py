"""`surreal run`: from start to result, drained, resumed, and with processes that die."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from surreal.base.checkpoint import load_checkpoint

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


ROOT = Path(__file__).resolve().parents[2]


def result_of(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return found


def rounds_of(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "eval" / "scores.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "round"]


def test_run_trains_keeps_score_and_leaves_nothing_behind(workplace: Workplace) -> None:
    options = ["--set", "run.max_env_steps=5000", "--set", "eval.record_video_every=1000", "--seed", "3"]
    options += ["--set", "run.stop_at_return=null", "--set", "checkpoint.checkpoint_time_interval=900"]
    arguments = ("run", "cartpole-dqn", *workplace.fast_eval, *options)
    command = workplace.spawn("-m", "surreal", *arguments)
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "redis.address").exists, "the address")
    status = workplace.wait_for(
        lambda: found if len((found := workplace.status())["processes"]) == 5 else None, "all five processes"
    )
    assert status["run"] == run_dir.name
    agents = [psutil.Process(each["pid"]) for each in status["processes"] if each["name"].startswith("agent")]
    for agent in agents:  # or the run may be over before the command has started
        agent.suspend()
    code, output = workplace.run("status")
    assert (code, f"{run_dir.name}: running" in output, "agent-1" in output) == (0, True, True), output
    for agent in agents:
        agent.resume()
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
    metrics = [json.loads(line).get("metrics", {}) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    reported = set().union(*metrics)
    listed = set(re.findall(r"`([a-z]+/[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert "learner/loss" in reported
    assert reported <= listed, f"docs/metrics.md does not know {sorted(reported - listed)}"
    assert "best return" in command.output
    assert f"surreal play {run_dir.relative_to(workplace.folder)}/eval/best.safetensors" in command.output
    assert len(list((run_dir / "checkpoints").glob("*.safetensors"))) == 1
    assert not (run_dir / "redis.address").exists()
    assert any((run_dir / "tensorboard" / "learner").iterdir())
    page = (ROOT / "docs" / "run-folder.md").read_text()
    patterns = [
        re.escape(path).replace("NAME", "[a-z0-9-]+").replace("NNNNNNNNNN", r"\d{10}")
        + (".*" if path[-1] == "/" else "")
        for path in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    ]
    for file in [str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file()]:
        assert any(re.fullmatch(pattern, file) for pattern in patterns), f"docs/run-folder.md does not know {file}"
    assert (run_dir / "eval" / "videos" / "round-000000-episode-0.mp4").stat().st_size > 1000
    workplace.assert_nothing_is_left()


def test_own_redis_ends_with_a_launcher_that_is_killed_and_a_run_resumes_from_its_files(workplace: Workplace) -> None:
    often = ["--set", "checkpoint.interval_updates=50"]
    options = (*workplace.fast_eval, *workplace.endless, *workplace.one_agent)
    command = workplace.start("run", "cartpole-dqn", *options, *often)
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: len(list((run_dir / "checkpoints").glob("*.safetensors"))) > 1, "checkpoints")
    # What is to be gone afterwards is seen now.
    assert {command.pid, workplace.role_pid("learner")} <= {process.pid for process in workplace.processes()}
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    workplace.wait_until_nothing_runs()
    # Its experience is gone with its Redis; what counts is in the newest whole checkpoint.
    newest = max((run_dir / "checkpoints").glob("*.safetensors"))
    newest.with_name("9999999999.safetensors").write_bytes(newest.read_bytes()[:-100])
    state = load_checkpoint(newest).metadata["state"]
    limit = state["global_step"] + 2500
    code, output = workplace.run("run", "--resume", "--run-dir", str(run_dir), "--set", f"run.max_env_steps={limit}")
    assert code == 0, output
    result = result_of(run_dir)
    assert result["updates"] > state["updates"]
    assert result["env_steps"] >= limit
    assert f"restored {newest}: {state['updates']} updates" in (run_dir / "logs" / "learner.log").read_text()
    assert workplace.processes() == []  # the folder of the killed server is swept by a later start
