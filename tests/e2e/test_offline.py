"""Training from an exported replay: no agents, and a policy far above random all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from surreal.base.checkpoint import CheckpointStore
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


@pytest.fixture
def swung(redis_server: Any, run_id: str, tmp_path: Path) -> Iterator[Path]:
    """An archive of two episodes of Pendulum, with random actions."""
    with RedisClient(redis_server.address, run=run_id) as client:
        sender = ExpSender(client)
        env = gymnasium.make("Pendulum-v1")
        env.action_space.seed(0)
        for seed in range(2):
            obs, is_over = env.reset(seed=seed)[0], False
            while not is_over:
                action = env.action_space.sample()
                new_obs, reward, _, is_over, _ = env.step(action)
                sender.send([obs, new_obs], action, float(reward), is_over, truncated=is_over)
                obs = new_obs
        env.close()
        assert sender.close()
        archive = tmp_path / "out-archive"
        export_replay(client, archive)
        yield archive
        client.delete_run()


@pytest.mark.parametrize("kind", ["bc", "td3bc", "iql", "cql"])
def test_a_learner_of_recorded_experience_continues_online(workplace: Workplace, swung: Path, kind: str) -> None:
    run_dir, recorded, updates = workplace.folder / "runs" / "mine", 400, 300
    code, output = workplace.run(
        "run", f"pendulum-{kind}", "--run", "mine", "--offline", str(swung), "--set", "eval.enabled=false",
        "--set", f"learner.max_updates={updates}", "--set", "learner.batch_size=32", "--set", "replay.start_size=50",
    )  # fmt: skip
    assert code == 0, output
    offline = json.loads((run_dir / "result.json").read_text())
    assert (offline["updates"], offline["env_steps"]) == (updates, recorded)
    before = newest_checkpoint(run_dir)
    code, output = workplace.run(
        "run", "--run", "mine", "--resume", "--set", "agent.count=1", "--set", "replay.samples_per_insert=8",
        "--set", f"run.max_env_steps={recorded + 400}", "--set", "learner.max_updates=null",
    )  # fmt: skip
    assert code == 0, output
    online = json.loads((run_dir / "result.json").read_text())
    # A learner that began again would reach about 100 updates with 400 steps.
    assert online["updates"] > updates and online["env_steps"] >= recorded + 400
    after = newest_checkpoint(run_dir)
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before if name.startswith("model/"))


def newest_checkpoint(run_dir: Path) -> Any:
    whole = CheckpointStore(run_dir / "checkpoints").newest_whole()
    assert whole is not None
    return whole.tensors
