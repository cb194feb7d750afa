"""An on-policy algorithm of one's own is one file: agent, model, replay and everything around them are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

REINFORCE = '''
"""REINFORCE with the value as its baseline (Williams 1992)."""

import torch

from surreal.learner import ActorCriticLearner
from surreal.learner.returns import bootstrapped_returns


class Reinforce(ActorCriticLearner):
    """Args: model, replay, options: see `ActorCriticLearner`."""

    def improve(self, batch):
        policy, value = self.model(batch.obs)
        with torch.no_grad():
            returns = bootstrapped_returns(batch.reward, batch.discount, batch.mask, value)
        error = batch.mask * (returns - value[:-1])
        steps = batch.mask.sum()
        policy_loss = -(error.detach() * policy[:-1].log_probability(batch.action)).sum() / steps
        entropy = (batch.mask * policy[:-1].entropy()).sum() / steps
        return self.descend(policy_loss, error.square().sum() / steps, entropy)
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
    assert len(REINFORCE.strip().splitlines()) <= 25
    (workplace.folder / "my_reinforce.py").write_text(REINFORCE)
    (workplace.folder / "toy.yaml").write_text(YAML)
    code, output = workplace.run("run", "toy.yaml")
    assert code == 0, output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
