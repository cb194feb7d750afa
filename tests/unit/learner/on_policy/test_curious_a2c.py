"""A2C with curiosity: its reward is the learner's alone, and its networks are kept and restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from gymnasium import spaces

from surreal.learner import A2CLearner
from surreal.learner.on_policy.a2c import CURIOSITY
from tests.unit.learner.off_policy.checks import assert_goes_on_bit_for_bit, tensors_of

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play

SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 2]),
    "multi_binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}
SMALL = {"reward_scale": 1.0, "hidden_sizes": [4], "units": 4}


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("space", SPACES)
def test_learns_from_surprise_with_every_kind_of_action(
    space: str, use_lstm: bool, make_model: MakeModel, play: Play
) -> None:
    model = make_model(space=SPACES[space], use_lstm=use_lstm, lstm_size=4, normalize_obs=True)
    learner = A2CLearner(model, icm=SMALL, metrics_interval=1)
    metrics = learner.optimize(0, play(model))
    assert metrics["intrinsic_reward_mean"] > 0.0
    assert metrics["gradient_norm_curiosity"] > 0.0


def test_intrinsic_reward_is_added_to_the_returns_and_to_nothing_that_is_recorded(
    make_model: MakeModel, play: Play
) -> None:
    """Without reward from the environment there is an advantage all the same; filter and batch know nothing of it."""
    model = make_model(normalize_rewards=True)
    batch = play(model)
    batch = batch._replace(reward=torch.zeros_like(batch.reward))
    learner = A2CLearner(model, icm=SMALL)
    learner.optimize(0, batch)
    assert not batch.reward.any()
    assert model.return_filter is not None
    assert not model.return_filter.moments.mean.any()


def test_a_scale_of_zero_leaves_the_policy_as_it_is_without_curiosity(make_model: MakeModel, play: Play) -> None:
    models = []
    for icm in (None, {**SMALL, "reward_scale": 0.0}):
        model = make_model()
        A2CLearner(model, icm=icm).optimize(0, play(model))
        models.append(model.tensors())
    for name, tensor in models[0].items():
        assert torch.equal(tensor, models[1][name]), name


def test_the_policys_loss_does_not_move_curiosity_and_surprise_not_the_policy(
    make_model: MakeModel, play: Play
) -> None:
    model = make_model()
    batch = play(model)
    learner = A2CLearner(model, icm=SMALL)
    learner.optimize(0, batch)
    before = tensors_of(learner)
    learner.step(learner.foresee(batch).loss.mean(), CURIOSITY)
    changed = {name.partition("/")[0] for name, tensor in tensors_of(learner).items() if not tensor.equal(before[name])}
    assert changed == {CURIOSITY, f"optimizer-{CURIOSITY}"}


def test_a_restored_learner_goes_on_bit_for_bit(make_model: MakeModel, play: Play, tmp_path: Path) -> None:
    source = make_model()
    batches: list[Any] = [play(source, seed=seed) for seed in range(4)]
    assert_goes_on_bit_for_bit(lambda: A2CLearner(make_model(normalize_obs=True), icm=SMALL), batches, tmp_path)


def test_wrong_settings_of_curiosity_are_refused_at_once(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="icm has no setting nu"):
        A2CLearner(make_model(), icm={"nu": 0.8})
