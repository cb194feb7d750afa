"""TD3+BC: the policy's loss by the formula, and that the policy stays where the experience is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from surreal.base.types import Batch
from surreal.learner import DDPGLearner, TD3BCLearner
from surreal.model import DeterministicActorCritic
from tests.unit.learner.off_policy.checks import BOX, HALF, transitions

MakeBatch = Callable[..., Batch]


def made(cls: Any = TD3BCLearner, hiddens: tuple[int, ...] = (8,), **args: Any) -> Any:
    return cls(DeterministicActorCritic(hiddens, action_space=BOX, seed=0), gradients_norm_clipping=None, **args)


def test_the_policys_loss_is_the_formula(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    learner = made(policy_delay=1, initial_learning_rate=1e-30)
    learner.optimize(0, batch)
    model = learner.model
    action = model(batch.obs).detach()
    value = model.critic(batch.obs, action)[0].detach()
    weight = 2.5 / (sum(abs(float(each)) for each in value) / 16)
    distance = sum(float(((action[i, j] - batch.action[i, j]) / HALF[j]) ** 2) for i in range(16) for j in range(2))
    expected = distance / 32 - weight * float(value.mean())
    assert learner.reading["policy_loss"] == pytest.approx(expected, rel=1e-4)


def test_it_is_td3_with_another_loss_of_the_policy(make_continuous: MakeBatch) -> None:
    td3 = made(DDPGLearner, policy_delay=2, smoothing_sigma=0.2)
    ours = made()
    for i in range(3):
        for learner in (td3, ours):
            learner.optimize(i, make_continuous(i))
        is_same = all(
            torch.equal(tensor, td3.model.critic.tensors()[name])
            for name, tensor in ours.model.critic.tensors().items()
        )
        assert is_same == (i < 2), "the first step of the actor is the second update"


def test_it_stays_near_the_experience_where_the_critics_promise_more() -> None:
    generator = torch.Generator().manual_seed(0)
    learners = (made(hiddens=(32,), value_weight=0.3), made(DDPGLearner, hiddens=(32,)))
    for i in range(200):
        obs = torch.rand(64, 4, generator=generator) - 0.5
        action = torch.tensor([1.0, 5.0]) + 0.2 * HALF * torch.randn(64, 2, generator=generator)
        reward = ((action - torch.tensor([1.0, 5.0])) / HALF).sum(1)  # more is better, also beyond what was tried
        for learner in learners:
            learner.optimize(i, transitions(obs, action, reward))
    obs = torch.rand(64, 4, generator=generator) - 0.5
    distances = [
        float(((learner.model(obs) - torch.tensor([1.0, 5.0])) / HALF).mean().detach()) for learner in learners
    ]
    assert 0.05 < distances[0] < 0.4 and distances[1] > 0.8
