"""Steps whose action something else chose teach the value, and leave the policy alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from surreal.base.types import TrajectoryBatch
from surreal.learner import (
    A2CLearner,
    APPOLearner,
    IPGLearner,
    PolicyGradientLearner,
    PPOLearner,
    TRPOLearner,
    VTraceLearner,
)
from tests.unit.learner.on_policy.conftest import MakeModel, Play

LEARNERS: list[tuple[Any, dict[str, Any]]] = [
    (PolicyGradientLearner, {}),
    (A2CLearner, {"policy_clip": 0.2, "entropy_beta": 0.1}),
    (VTraceLearner, {}),
    (PPOLearner, {"mini_batch": 32, "kl_target": 0.01, "entropy_beta": 0.1}),
    (APPOLearner, {"mini_batch": None}),
    (TRPOLearner, {}),
    (IPGLearner, {"interpolation_weight": 0.0}),
]
BOX = spaces.Box(-9, 9, (2,))


def marked(batch: TrajectoryBatch, is_intervention: torch.Tensor, action: float) -> TrajectoryBatch:
    """Replace the actions of some steps; no reward tells of it."""
    where = is_intervention.unsqueeze(-1) if batch.action.ndim == 3 else is_intervention
    actions = batch.action.masked_fill(where, action)
    return batch._replace(action=actions, extras={**batch.extras, "is_intervention": is_intervention})


def learnt(cls: Any, options: dict[str, Any], model: Any, batch: TrajectoryBatch) -> tuple[dict[str, Any], Any]:
    learner = cls(model, None, **options)
    found = dict(learner.optimize(0, batch))
    return {name: tensor.clone() for name, tensor in model.tensors().items()}, found


@pytest.mark.parametrize("space", [None, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize(("cls", "options"), LEARNERS)
def test_an_executed_action_does_not_matter_to_the_policy(
    make_model: MakeModel, play: Play, cls: Any, options: dict[str, Any], space: Any
) -> None:
    if cls is IPGLearner:
        options = {**options, "critic_iterations": 1}
    some = torch.rand(16, 8, generator=torch.Generator().manual_seed(1)) < 0.4
    results = []
    for action in (0.0, 2.0):
        model = make_model(space=space, value_hiddens=(8,)) if cls is TRPOLearner else make_model(space=space)
        results.append(learnt(cls, options, model, marked(play(model), some, action))[0])
    first, second = results
    for name, tensor in first.items():
        assert tensor.isfinite().all()
        assert torch.equal(tensor, second[name]), name


@pytest.mark.parametrize(("cls", "options"), LEARNERS)
def test_the_value_learns_where_the_policy_does_not(
    make_model: MakeModel, play: Play, cls: Any, options: dict[str, Any]
) -> None:
    model = make_model(value_hiddens=(8,))
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    batch = marked(play(model), torch.ones(16, 8, dtype=torch.bool), 1.0)
    after, _ = learnt(cls, {**options, "entropy_beta": 0.0} if cls is not TRPOLearner else options, model, batch)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in moved if name.startswith("value")}
    assert not {name for name in moved if not name.startswith("value")}


@pytest.mark.parametrize(("cls", "options"), LEARNERS)
def test_an_illegal_action_is_no_infinite_loss(
    make_model: MakeModel, play: Play, cls: Any, options: dict[str, Any]
) -> None:
    model = make_model(value_hiddens=(8,)) if cls is TRPOLearner else make_model()
    batch = play(model)
    legal = torch.ones(16, 8, 3, dtype=torch.bool)
    some = torch.zeros(16, 8, dtype=torch.bool)
    some[3] = True
    legal[3, :, 1] = False
    batch = marked(batch._replace(extras={**batch.extras, "action_mask": legal}), some, 1)
    after, metrics = learnt(cls, options, model, batch)
    assert all(tensor.isfinite().all() for tensor in after.values())
    assert all(torch.as_tensor(value).isfinite() for value in metrics.values())
