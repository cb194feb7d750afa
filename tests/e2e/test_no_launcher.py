"""Processes on several machines, without a launcher: the learner's folder has what a launcher's has."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SETTINGS = """
name: tiny
env: {id: CartPole-v1, num_envs: 1}
model: {args: {hidden_sizes: [8]}}
learner: {batch_size: 8}
replay: {capacity: 1000, start_size: 20}  # no limiter: what comes before the learner is taken
sender: {chunk_steps: 8, max_delay_s: 0.1}
eval: {interval_s: 0.1, episodes: 2, confirm_episodes: 0}
"""


def test_the_learners_folder_tells_all(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "tiny.yaml").write_text(SETTINGS)
    common = ["--run", run_id, "--redis", redis_server.address]
    wrong = workplace.start("agent", "runs/tiny.yaml", *common, "--index", "1", "--set", "env.id=Acrobot-v1")
    workplace.wait_for(lambda: workplace.knows(run_id, redis_server.address), "the agent that is wrong")
    sent = lambda: workplace.status(run_id, redis_server.address)["env_steps"]  # noqa: E731
    workplace.wait_for(sent, "its experience")
    agent = workplace.start("agent", *common, "--index", "0")
    workplace.wait_for(lambda: "waiting for the learner of run" in agent.output, "the agent without a preset")
    place = workplace.folder / "runs" / "learner"
    learner = workplace.start("learner", "runs/tiny.yaml", *common, "--run-dir", str(place))
    assert wrong.wait() == 1
    # Whichever it finds first: the configuration, or the model that follows from it.
    assert "differs from run" in wrong.output or "processes of a run need the same model" in wrong.output
    elsewhere = workplace.folder / "runs" / "eval"
    evaluation = workplace.start("eval", *common, "--run-dir", str(elsewhere))
    workplace.wait_for((place / "eval" / "best.json").exists, "the first scores")
    assert json.loads((place / "result.json").read_text())["status"] == "running"
    assert workplace.run("stop", run_id, *common[2:])[0] == 0
    for command in (agent, evaluation, learner):
        assert command.wait() == 0, command.output
    result = json.loads((place / "result.json").read_text())
    assert (result["status"], result["reason"], result["exit_code"]) == ("finished", "surreal stop", 0)
    assert result["updates"] > 0
    assert "env steps were dropped: they came from processes whose configuration was not that of run" in learner.output
    assert result["best"] == json.loads((elsewhere / "eval" / "best.json").read_text())
    for name in ("scores.jsonl", "best.json", "best.safetensors"):
        assert (place / "eval" / name).read_bytes() == (elsewhere / "eval" / name).read_bytes()
    assert "hidden_sizes" in (place / "app.yaml").read_text()
    # As if the learner had been killed just before it wrote that; an engine starts it again.
    (place / "result.json").write_text(json.dumps({**result, "status": "running", "reason": None, "exit_code": None}))
    again = workplace.start("learner", "runs/tiny.yaml", *common, "--run-dir", str(place), "--resume", "--stay")
    told = lambda: json.loads((place / "result.json").read_text())["status"] == "finished"  # noqa: E731
    workplace.wait_for(told, "the result")
    told_again = json.loads((place / "result.json").read_text())
    same = ("status", "reason", "exit_code", "updates", "best")
    assert [told_again[key] for key in same] == [result[key] for key in same]
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == 0, again.output
