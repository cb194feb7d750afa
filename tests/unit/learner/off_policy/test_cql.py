"""CQL: the critics' loss by the formula, its estimate of the soft maximum, and that unknown actions are worth less."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from surreal.base.types import Batch
from surreal.learner import CQLLearner, SACLearner
from surreal.model import DiscreteSoftActorCritic, SoftActorCritic
from tests.unit.learner.off_policy.checks import BOX, HALF, assert_goes_on_bit_for_bit, transitions

MakeBatch = Callable[..., Batch]


def made(cls: Any = CQLLearner, hiddens: tuple[int, ...] = (8,), **args: Any) -> Any:
    return cls(SoftActorCritic(hiddens, action_space=BOX, seed=0), gradients_norm_clipping=None, **args)


def test_the_critics_loss_is_the_formula(make_continuous: MakeBatch) -> None:
    batch, number = make_continuous(weight=0.5), 2
    options = {"initial_learning_rate": 1e-30}
    learner = made(conservative_actions=number, conservative_weight=3.0, **options)
    learner.optimize(0, batch)
    plain = made(SACLearner, **options)
    plain.optimize(0, batch)
    model = learner.model
    generator = learner._noise.of(0)
    model.draw(batch.next_obs, generator)  # of the target
    scaled = torch.empty(number * 16, 2).uniform_(-1.0, 1.0, generator=generator)
    center = torch.tensor([1.0, 5.0])
    kinds = [(center + HALF * scaled, torch.full((number * 16,), 2 * math.log(0.5)))]
    kinds += [model.draw(obs.repeat(number, 1), generator) for obs in (batch.obs, batch.next_obs)]
    gap = 0.0
    for member in range(2):
        for row in range(16):
            obs = batch.obs[row][None]
            total = 0.0
            for action, log_density in kinds:
                for drawn in range(row, number * 16, 16):
                    value = model.critic(obs, action[drawn][None])[member, 0].item()
                    total += math.exp(value - log_density[drawn].item()) / (3 * number)
            gap += 0.5 * (math.log(total) - model.critic(obs, batch.action[row][None])[member, 0].item()) / 16
    assert learner.reading["loss"] == pytest.approx(plain.reading["loss"] + 3.0 * gap, rel=1e-4)


def test_without_weight_it_is_sac(make_continuous: MakeBatch) -> None:
    ours, sac = made(conservative_weight=0.0, policy_delay=100), made(SACLearner, policy_delay=100)
    for learner in (ours, sac):
        learner.optimize(0, make_continuous())
    for name, tensor in ours.model.tensors().items():
        assert torch.equal(tensor, sac.model.tensors()[name])


def test_the_soft_maximum_is_an_integral_over_all_actions(make_continuous: MakeBatch) -> None:
    batch, learner = make_continuous(rows=1), made(conservative_actions=3000)
    learner.optimize(0, batch)
    grid = torch.cartesian_prod(torch.linspace(-1.0, 3.0, 81), torch.linspace(0.0, 10.0, 81))
    critic = learner.model.critic
    with torch.no_grad():
        soft = (critic(batch.obs.expand(len(grid), -1), grid).exp().mean(1) * 4.0).log()  # the range is 2 x 2, scaled
        outputs = critic.outputs(batch.obs, batch.action)
        loss = learner.critic_loss(batch, outputs, torch.zeros(1, 1), learner._noise.of(5))
    values = critic.output.forward(outputs)[:, 0]
    expected = float(values.square().sum() + 5.0 * (soft - values).sum())
    # 9,000 actions, whose weights differ by a factor of a few at most: an error of about 1 % of each integral.
    assert float(loss) == pytest.approx(expected, abs=0.2)


def test_actions_that_the_experience_lacks_are_worth_less() -> None:
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"hiddens": (32,), "initial_learning_rate": 1e-2}
    learners = [made(conservative_actions=4, **options), made(SACLearner, **options)]
    known = torch.tensor([1.0, 5.0])
    for i in range(100):
        obs = torch.rand(64, 4, generator=generator) - 0.5
        action = known + 0.1 * HALF * torch.randn(64, 2, generator=generator)
        for learner in learners:
            learner.optimize(i, transitions(obs, action, torch.zeros(64)))
    obs = torch.rand(64, 4, generator=generator) - 0.5
    differences = []
    for learner in learners:
        values = [learner.model.critic(obs, each.expand(64, 2)).mean() for each in (known, known + 0.9 * HALF)]
        differences.append(float((values[0] - values[1]).detach()))
    assert differences[0] > 1.0 and differences[0] > 3.0 * abs(differences[1])


def test_a_restored_learner_goes_on_bit_for_bit(make_continuous: MakeBatch, tmp_path: Path) -> None:
    batches = [make_continuous(seed) for seed in range(6)]
    assert_goes_on_bit_for_bit(lambda: made(conservative_actions=2), batches, tmp_path)


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="must be a SoftActorCritic"):
        CQLLearner(DiscreteSoftActorCritic(action_space=spaces.Discrete(2)))  # type: ignore[arg-type]
