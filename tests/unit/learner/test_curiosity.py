"""Curiosity: its losses against naive loops, what flows where, and that what was often seen becomes boring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.base.types import SampleInfo, TrajectoryBatch
from surreal.learner.curiosity import CuriositySettings, forward_error, read_curiosity, surprise, surprise_loss
from surreal.model.curiosity import Dynamics, action_features
from tests.unit.learner.off_policy.checks import finite_differences

SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}
SMALL = CuriositySettings(hidden_sizes=(3,), units=2)


def steps(space: spaces.Space[Any], rows: int = 4, columns: int = 3, seed: int = 0) -> TrajectoryBatch:
    rng = np.random.default_rng(seed)
    space.seed(seed)
    action = np.array([[space.sample() for _ in range(columns)] for _ in range(rows)])
    obs = torch.tensor(rng.normal(size=(rows + 1, columns, 5)), dtype=torch.float32)
    shape = (rows, columns)
    mask = torch.ones(shape)
    mask[2, 1] = 0.0
    nothing, false = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    info = SampleInfo(*[np.zeros(columns, np.int64)] * 3)
    return TrajectoryBatch(
        obs, torch.tensor(action), nothing, nothing, mask, false, false, false, nothing, {}, {}, info
    )


def make(space: spaces.Space[Any], settings: CuriositySettings = SMALL, seed: int = 0) -> Dynamics:
    return settings.make(ObsSpec.from_obs(np.zeros(5, np.float32)), space, seed=seed)


def test_losses_equal_naive_loops() -> None:
    rng = np.random.default_rng(0)
    predicted, features = (torch.tensor(rng.normal(size=(4, 3, 2)), dtype=torch.float32) for _ in range(2))
    inverse = torch.tensor(rng.normal(size=(4, 3)), dtype=torch.float32)
    error = forward_error(predicted, features)
    loss = surprise_loss(inverse, error, 0.2)
    assert error.shape == loss.shape == (4, 3)
    for t in range(4):
        for b in range(3):
            half = 0.5 * sum(float(predicted[t, b, k] - features[t, b, k]) ** 2 for k in range(2))
            assert float(error[t, b]) == pytest.approx(half, rel=1e-5)
            assert float(loss[t, b]) == pytest.approx(0.8 * float(inverse[t, b]) + 0.2 * half, rel=1e-5)
    with pytest.raises(ValueError, match=r"features has shape \(4, 3\)"):
        forward_error(predicted, features[..., 0])


def test_the_inverse_loss_of_choices_is_their_cross_entropy() -> None:
    """With all of the weight on the inverse model, against sums of log softmax by hand."""
    dynamics, batch = make(SPACES["discrete"]), steps(SPACES["discrete"])
    found = surprise(dynamics, batch, CuriositySettings(forward_share=0.0)).loss
    features = dynamics.encoder(batch.obs)
    for t in range(4):
        for b in range(3):
            pair = torch.cat((features[t, b], features[t + 1, b]))
            logits = dynamics.action.output(dynamics.inverse(pair)).tolist()
            chosen = logits[int(batch.action[t, b])]
            expected = math.log(sum(math.exp(logit) for logit in logits)) - chosen
            assert float(found[t, b].detach()) == pytest.approx(expected, rel=1e-4)


def test_reward_is_for_steps_alone_and_has_no_gradient() -> None:
    dynamics, batch = make(SPACES["discrete"]), steps(SPACES["discrete"])
    settings = CuriositySettings(reward_scale=2.0)
    reward = surprise(dynamics, batch, settings).reward
    foreseen = dynamics(batch.obs, batch.action)
    error = forward_error(foreseen.predicted, foreseen.features).detach()
    assert not reward.requires_grad
    assert torch.equal(reward == 0.0, batch.mask == 0.0)
    torch.testing.assert_close(reward, 2.0 * error * batch.mask)


@pytest.mark.parametrize("name", SPACES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Of the inverse loss by all parameters, and of the forward loss by the forward model's."""
    dynamics, batch = make(SPACES[name]), steps(SPACES[name])
    for share, parameters in ((0.0, [*dynamics.encoder.parameters(), *dynamics.inverse.parameters()]),
                              (1.0, list(dynamics.ahead.parameters()))):  # fmt: skip
        settings = CuriositySettings(forward_share=share)

        def loss(settings: CuriositySettings = settings) -> torch.Tensor:
            return (batch.mask * surprise(dynamics, batch, settings).loss).sum()

        found = torch.autograd.grad(loss(), parameters)
        for ours, theirs in zip(found, finite_differences(loss, parameters), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=5e-3)  # of float32, by steps of 0.01


def test_the_encoder_does_not_learn_to_be_foreseen() -> None:
    """It would find features that never change, and nothing would be surprising."""
    dynamics, batch = make(SPACES["discrete"]), steps(SPACES["discrete"])
    loss = surprise(dynamics, batch, CuriositySettings(forward_share=1.0)).loss.sum()
    for gradient in torch.autograd.grad(loss, dynamics.encoder.parameters(), allow_unused=True):
        assert gradient is None or not gradient.any()


@pytest.mark.parametrize("name", SPACES)
def test_what_was_seen_often_becomes_boring_and_what_is_new_does_not(name: str) -> None:
    settings = CuriositySettings(reward_scale=1.0, hidden_sizes=(8,), units=16)
    dynamics, seen, unseen = make(SPACES[name], settings), steps(SPACES[name]), steps(SPACES[name], seed=1)
    optimizer = torch.optim.Adam(dynamics.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        found = surprise(dynamics, seen, settings)
        (seen.mask * found.loss).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    old, new = (surprise(dynamics, batch, settings).reward.sum() for batch in (seen, unseen))
    assert old < 0.1 * new


def test_choices_are_one_hot_and_all_else_is_as_it_is() -> None:
    assert action_features(spaces.Discrete(3), torch.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    found = action_features(SPACES["multi_discrete"], torch.tensor([[1, 2]]))
    assert found.tolist() == [[0, 1, 0, 0, 1]]
    assert action_features(SPACES["multi_binary"], torch.tensor([1, 0], dtype=torch.int8)).tolist() == [1.0, 0.0]
    assert action_features(SPACES["box"], torch.tensor([0.5, -0.5])).tolist() == [0.5, -0.5]


def test_images_go_through_convolutions() -> None:
    image = ObsSpec.from_obs(np.zeros((1, 20, 20), np.uint8))
    dynamics = CuriositySettings(convolutions="universe", hidden_sizes=()).make(image, spaces.Discrete(2))
    obs = torch.randint(0, 256, (3, 2, 1, 20, 20), dtype=torch.uint8)
    foreseen = dynamics(obs, torch.zeros(2, 2, dtype=torch.int64))
    assert foreseen.features.shape == foreseen.predicted.shape == (2, 2, 32 * 2 * 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_scale": -1.0}, r"^icm.reward_scale is -1.0; it must be >= 0$"),
        ({"forward_share": 2}, r"^icm.forward_share is 2; it must be in \[0, 1\]"),
        ({"learning_rate": 0.0}, r"^icm.learning_rate is 0.0; it must be > 0$"),
        ({"reward_scal": 1.0}, "icm has no setting reward_scal; it has reward_scale"),
    ],
)
def test_a_wrong_or_misspelt_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_curiosity(settings)
