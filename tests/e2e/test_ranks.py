"""A learner of two ranks: both have the same parameters, one of them publishes, and they end together."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from surreal.distributed.connection.client import RedisClient

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SETTINGS = """
name: tiny
env: {id: CartPole-v1, num_envs: 2}
model: {args: {hidden_sizes: [8]}}
learner: {class: noted.Noted, batch_size: 8}
replay: {class: surreal.replay.PrioritizedReplay, capacity: 2000, start_size: 40, samples_per_insert: 2, shards: 2}
broadcast: {interval_updates: 10}
sender: {chunk_steps: 8, max_delay_s: 0.1}
eval: {enabled: false}
"""
LEARNER = """
import hashlib
import os
from pathlib import Path

import torch

from surreal.learner import DQNLearner


class Noted(DQNLearner):
    # Notes what the parameters are after each update.
    def learn(self, i, batch):
        rank = os.environ.get("RANK", "0")
        if Path("fail").exists() and rank == "1":
            raise RuntimeError("the second rank cannot go on")
        metrics = super().learn(i, batch)
        numbers = torch.cat([each.detach().reshape(-1) for each in self.model.parameters()]).numpy().tobytes()
        with open(f"noted-{rank}", "a") as file:
            file.write(f"{self.updates} {hashlib.sha256(numbers).hexdigest()}\\n")
        return metrics
"""


def start_all(workplace: Workplace, address: str, run: str, *arguments: str) -> list[Any]:
    """A learner of two ranks, and an agent for each of its two shards."""
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "tiny.yaml").write_text(SETTINGS)
    (workplace.folder / "runs" / "noted.py").write_text(LEARNER)
    common = ["runs/tiny.yaml", "--run", run, "--redis", address]
    learner = workplace.start("learner", *common, "--ranks", "2", *arguments)
    agents = [workplace.start("agent", *common, "--index", str(index)) for index in range(2)]
    return [learner, *agents]


def test_ranks_have_the_same_parameters_after_each_update_and_fail_together(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    learner, *agents = start_all(workplace, redis_server.address, run_id)
    notes = [workplace.folder / f"noted-{rank}" for rank in range(2)]
    workplace.wait_for(
        lambda: all(path.exists() and path.stat().st_size > 4000 for path in notes), "50 updates of each"
    )
    (workplace.folder / "fail").touch()
    assert learner.wait() == 1, learner.output
    first, second = (path.read_text().splitlines() for path in notes)
    del first[0]  # rank 0 tries one update before the run, with a learner that it then discards
    assert len(second) > 50
    assert first[: len(second)] == second
    folder = workplace.folder / "runs" / run_id
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "failed"
    assert "rank 1 of the learner failed: RuntimeError: the second rank cannot go on" in result["reason"]
    with RedisClient(redis_server.address, run=run_id) as client:
        version = client.redis.hget(client.policy_keys("default").params, "version")
        assert int(version or 0) == result["version"] > 0  # type: ignore[arg-type]
    assert "rank 1 of 2" in (folder / "logs" / "learner-rank-1.log").read_text()
    for agent in agents:
        agent.interrupt()
        assert agent.wait() == 130, agent.output


def test_a_run_whose_learner_loses_a_rank_starts_all_ranks_again_and_learns(workplace: Workplace) -> None:
    command = workplace.start(
        "run", "cartpole-dqn", "--set", "learner.ranks=2", "--set", "replay.shards=2",
        "--set", "run.stop_at_return=120", "--set", "checkpoint.interval_updates=50", *workplace.fast_eval,
    )  # fmt: skip
    run_dir = workplace.run_dir()
    saved = run_dir / "checkpoints"
    workplace.wait_for(lambda: saved.exists() and any(saved.iterdir()), "a checkpoint")
    pid = workplace.role_pid("learner-rank-1")
    os.kill(pid, signal.SIGKILL)
    assert command.wait() == 0, command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["status"], result["restarts"]) == ("finished", 1)
    assert result["reason"].startswith("stop_at_return")
    log = (run_dir / "logs" / "launcher.log").read_text()
    assert "rank 1 of the learner was killed by SIGKILL; starting it again" in log
    assert "restored" in (run_dir / "logs" / "learner.log").read_text()
    workplace.assert_nothing_is_left()
