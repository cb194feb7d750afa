"""Training from an exported replay: no agents, and a policy far above random all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.replay.archive import export_replay

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

STEPS = 8000


@pytest.fixture
def balanced(redis_server: Any, run_id: str, tmp_path: Path) -> Iterator[Path]:
    """An archive: a scripted policy balances the pole, and every third action is random."""
    rng = np.random.default_rng(0)
    with RedisClient(redis_server.address, run=run_id) as client:
        sender = ExpSender(client, chunk_steps=256, lookahead=2)
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=0)
        for _ in range(STEPS):
            action = int(obs[2] + 0.5 * obs[3] + 0.05 * obs[0] + 0.1 * obs[1] > 0)
            if rng.random() < 0.35:
                action = int(rng.integers(2))
            new_obs, reward, terminated, truncated, _ = env.step(action)
            sender.send([obs, new_obs], action, float(reward), terminated or truncated, truncated=truncated)
            obs = env.reset()[0] if terminated or truncated else new_obs
        env.close()
        assert sender.close()
        archive = tmp_path / "out-archive"  # by its name, no run has left it behind
        export_replay(client, archive)
        yield archive
        client.delete_run()


def test_a_run_learns_from_an_archive_alone(workplace: Workplace, balanced: Path) -> None:
    code, output = workplace.run(
        "run", "cartpole-dqn", "--offline", str(balanced), "--seed", "1", *workplace.fast_eval,
        "--set", "eval.episodes=10", "--set", "learner.max_updates=4000", "--set", "run.stop_at_return=null",
        "--set", "eval.interval_s=0.1", "--set", "broadcast.interval_updates=100",
        "--set", "model.args.hidden_sizes=[64]", "--set", "learner.batch_size=32",
    )  # fmt: skip
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert result["reason"].startswith("max_updates")
    assert (result["updates"], result["env_steps"]) == (4000, STEPS)
    # An untrained network keeps the pole up for about 10 steps, random actions for 22. How many rounds are played while
    # the learner is at work depends on the machine, so this asks for much less than the 100 and more that are usual.
    assert result["best"]["mean_return"] > 30
    assert not (run_dir / "logs" / "agent-0.log").exists()
    workplace.assert_nothing_is_left()


def test_the_learner_alone_learns_from_an_archive_and_needs_no_redis(workplace: Workplace, balanced: Path) -> None:
    command = ("learner", "cartpole-dqn", "--offline", str(balanced), "--run", "alone")
    code, output = workplace.run(*command, "--set", "learner.max_updates=50")
    assert code == 0, output
    assert len(list((workplace.folder / "runs" / "alone" / "checkpoints").glob("*.safetensors"))) == 1
