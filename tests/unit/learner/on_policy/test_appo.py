"""APPO: its targets and one update against a naive loop, and what keeps the policy near the one before the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from surreal.base.types import TrajectoryBatch
from surreal.learner import APPOLearner, PPOLearner
from surreal.learner.on_policy.evaluating import evaluate

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play


@pytest.fixture
def stale(make_model: MakeModel, play: Play) -> TrajectoryBatch:
    """A batch of another policy than that of `make_model`."""
    other = make_model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return play(other)


def test_targets_are_those_of_a_naive_recursion(make_model: MakeModel, stale: TrajectoryBatch) -> None:
    model = make_model()
    options: dict[str, Any] = {"rho_bar": 1.2, "c_bar": 0.9, "gae_lambda": 0.8, "normalize_advantage": False}
    targets = APPOLearner(model, **options).targets(stale)
    with torch.no_grad():
        _, log_probability, value = evaluate(model, stale)
    ratio = (log_probability - stale.extras["log_probability"]).exp()
    assert (ratio[stale.mask > 0.0] - 1.0).abs().max() > 0.2

    def target(t: int, b: int) -> float:
        """Espeholt et al. 2018 remark 1."""
        if t == len(ratio) or not stale.mask[t, b]:
            return float(value[t, b])
        discount, weight = float(stale.discount[t, b]), float(ratio[t, b])
        delta = min(1.2, weight) * float(stale.reward[t, b] + discount * value[t + 1, b] - value[t, b])
        return (
            float(value[t, b]) + delta + discount * 0.8 * min(0.9, weight) * (target(t + 1, b) - float(value[t + 1, b]))
        )

    for t, b in np.ndindex(*ratio.shape):
        assert targets.returns[t, b].item() == pytest.approx(target(t, b), abs=1e-5), (t, b)
        expected = 0.0
        if stale.mask[t, b]:
            following = float(stale.reward[t, b] + stale.discount[t, b] * target(t + 1, b))
            expected = min(1.2, float(ratio[t, b])) * (following - float(value[t, b]))
        assert targets.advantage[t, b].item() == pytest.approx(expected, abs=1e-5), (t, b)


def test_one_update_is_the_formula(make_model: MakeModel, stale: TrajectoryBatch) -> None:
    settings: dict[str, Any] = {"initial_learning_rate": 0.05, "optimizer": "rmsprop", "normalize_advantage": False}
    model, reference = make_model(), make_model()
    learner = APPOLearner(model, policy_iterations=3, mini_batch=None, critic_scale=0.5, **settings)
    targets = learner.targets(stale)
    learner.optimize(0, stale)
    by_hand = torch.optim.RMSprop(reference.parameters(), lr=0.05, alpha=0.99, eps=0.01)
    is_step = stale.mask > 0.0
    before = evaluate(reference, stale).log_probability.detach()
    for _ in range(3):
        _, log_probability, value = evaluate(reference, stale)
        ratio, advantage = (log_probability - before).exp(), targets.advantage
        clipped = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = -clipped[is_step].mean() + 0.5 * (value[:-1] - targets.returns)[is_step].square().mean()
        by_hand.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        by_hand.step()
    for (name, found), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5, msg=name)


def test_the_first_step_is_not_clipped_however_old_the_experience_is(
    make_model: MakeModel, stale: TrajectoryBatch
) -> None:
    first = {"policy_iterations": 1, "mini_batch": None}
    assert APPOLearner(make_model(), **first).optimize(0, stale)["clip_fraction"] == 0.0
    assert PPOLearner(make_model(), **first).optimize(0, stale)["clip_fraction"] > 0.0


def test_a_trace_bound_above_that_of_the_weights_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match=r"c_bar is 2\.0; it must be <= rho_bar, which is 1\.0"):
        APPOLearner(make_model(), c_bar=2.0)
    with pytest.raises(ValueError, match=r"rho_bar is 0\.0; it must be > 0"):
        APPOLearner(make_model(), rho_bar=0.0)
