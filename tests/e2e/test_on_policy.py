"""A user's on-policy learner: an actor-critic on trajectories of a FIFOReplay, through `surreal run`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

PARTS = '''
import os

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from surreal.agent import Agent
from surreal.learner import Learner
from surreal.model import Model

PROCESS = int.from_bytes(os.urandom(3), "big") << 32


class Wide(gymnasium.Env):
    """Nothing to learn, in observations of 64 KiB."""

    observation_space = gymnasium.spaces.Box(0, 1, (16384,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = 50
        return np.zeros(16384, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(16384, np.float32), 0.0, self.left == 0, False, {}

gymnasium.register("Wide-v0", Wide)


class ActorCritic(Model):
    def __init__(self, action_space, inputs=4, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, int(action_space.n)), nn.Linear(width, 1)

    def forward(self, obs):
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden)[..., 0]


class Sampler(Agent):
    """Records a number of its own with each step."""

    count = 0

    def _act(self, obs, explore):
        policy = Categorical(logits=self.model(obs)[0])
        sampled = policy.sample()
        explore = torch.from_numpy(explore)
        actions = torch.where(explore, sampled, policy.logits.argmax(-1))
        numbers = PROCESS + self.count + torch.arange(len(actions))
        self.count += len(actions)
        return actions, {"number": numbers}


class A2C(Learner):
    """Advantage actor-critic with returns up to the end of each trajectory; refuses to see a step twice."""

    def __init__(self, model, replay, learning_rate=1e-3, entropy=0.01):
        super().__init__(model, replay)
        self.learning_rate, self.entropy = learning_rate, entropy
        self.seen = set()

    def build(self):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)

    def learn(self, i, batch):
        mask = batch.mask
        numbers = batch.extras["number"][mask > 0].tolist()
        if len(set(numbers)) < len(numbers) or not self.seen.isdisjoint(numbers):
            raise ValueError("a step was handed out twice")
        self.seen.update(numbers)
        logits, value = self.model(batch.obs)
        policy = Categorical(logits=logits[:-1])
        with torch.no_grad():
            total, returns = value[-1], []
            for t in reversed(range(len(mask))):
                total = mask[t] * (batch.reward[t] + batch.discount[t] * total) + (1 - mask[t]) * value[t]
                returns.append(total)
            returns = torch.stack(returns[::-1])
        advantage = mask * (returns - value[:-1])
        actor = -(advantage.detach() * policy.log_prob(batch.action)).sum()
        critic = advantage.square().sum()
        loss = (actor + 0.5 * critic - self.entropy * (mask * policy.entropy()).sum()) / mask.sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        return {"loss": loss.detach(), "consumed_steps": len(self.seen)}
'''

YAML = """
name: on-policy
env: {id: CartPole-v1, num_envs: 8}
model: {class: my_on_policy.ActorCritic}
agent: {class: my_on_policy.Sampler, count: 2}
learner: {class: my_on_policy.A2C, args: {learning_rate: 3.0e-3}, batch_size: 8, gamma: 0.98}
replay: {class: surreal.replay.FIFOReplay, args: {trajectory_steps: 32}}
broadcast: {interval_updates: 1}
eval: {episodes: 10, num_envs: 10, interval_s: 0.5, confirm_episodes: 0}
"""


@pytest.fixture
def on_policy(workplace: Workplace) -> str:
    (workplace.folder / "runs").mkdir()
    (workplace.folder / "runs" / "my_on_policy.py").write_text(PARTS)
    (workplace.folder / "runs" / "on-policy.yaml").write_text(YAML)
    return "runs/on-policy.yaml"


def test_an_actor_critic_of_the_users_own_improves_and_sees_each_step_once(
    workplace: Workplace, on_policy: str
) -> None:
    """Random play returns 22; the bound on env steps is several times what it takes to return 60."""
    limits = ("--set", "run.stop_at_return=60", "--set", "run.max_env_steps=200000")
    code, output = workplace.run("run", on_policy, *limits)
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
    assert result["version"] >= result["updates"], "a broadcast after each update"
    workplace.assert_nothing_is_left()


def test_a_full_stream_does_not_wait_for_the_next_broadcast(workplace: Workplace, on_policy: str) -> None:
    """Agents wait for room, the learner for their steps, and the broadcast that makes room would be far away."""
    settings = {
        "env.id": "my_on_policy:Wide-v0", "env.num_envs": 2, "agent.count": 1, "model.args.inputs": 16384,
        "model.args.width": 2, "learner.batch_size": 2, "replay.args.trajectory_steps": 16,
        "broadcast.interval_updates": 100_000, "redis.maxmemory": "32mb", "replay.max_bytes": "8mb",
        "sender.chunk_steps": 8, "run.max_env_steps": 700, "run.max_time_s": 180,
        "eval.enabled": "false",
    }  # fmt: skip
    overrides = [item for key, value in settings.items() for item in ("--set", f"{key}={value}")]
    code, output = workplace.run("run", on_policy, *overrides)
    assert code == 0, output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert "max_env_steps" in result["reason"], result
    assert 2 <= result["version"] < result["updates"]
