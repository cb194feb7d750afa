"""An on-policy algorithm of one's own is one file: agent, model, replay and everything around them are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

REINFORCE = '''
"""REINFORCE with the value as its baseline (Williams 1992)."""

import torch

from surreal.learner import GradientLearner
from surreal.learner.returns import bootstrapped_returns


class Reinforce(GradientLearner):
    """Args: model, replay, critic_scale: weight of the baseline's loss; options: see `GradientLearner`."""

    takes = frozenset({"trajectories"})

    def __init__(self, model, replay, *, critic_scale=0.5, **options):
        super().__init__(model, replay, **options)
        self.critic_scale = critic_scale

    def learn(self, i, batch):
        policy, value = self.model(batch.obs)
        with torch.no_grad():
            returns = bootstrapped_returns(batch.reward, batch.discount, batch.mask, value)
        error = batch.mask * (returns - value[:-1])
        log_probability = policy[:-1].log_probability(batch.action)
        policy_loss = -(error.detach() * log_probability).sum() / batch.mask.sum()
        value_loss = error.square().sum() / batch.mask.sum()
        self.step(policy_loss + self.critic_scale * value_loss)
        return {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
'''

YAML = """
name: toy
env: {id: CartPole-v1, num_envs: 8}
model: {class: surreal.model.ActorCritic}
agent: {class: surreal.agent.PolicyAgent, count: 1}
learner:
  class: my_reinforce.Reinforce
  args: {initial_learning_rate: 3.0e-3, gradients_norm_clipping: 0.5}
  batch_size: 8
  gamma: 0.98
replay: {class: surreal.replay.FIFOReplay, args: {trajectory_steps: 32}}
broadcast: {interval_updates: 1, interval_s: 0.0}
eval: {episodes: 10, num_envs: 10, interval_s: 0.5, confirm_episodes: 0}
run: {stop_at_return: 195, max_env_steps: 400_000}
"""


def test_a_learner_in_a_file_of_its_own_trains_cartpole(workplace: Workplace) -> None:
    """Random play returns 22; the bound on env steps is several times what it takes."""
    assert len(REINFORCE.strip().splitlines()) <= 40
    (workplace.folder / "my_reinforce.py").write_text(REINFORCE)
    (workplace.folder / "toy.yaml").write_text(YAML)
    code, output = workplace.run("run", "toy.yaml")
    assert code == 0, output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
