"""The learners of docs/person.md: steps that a person chose weigh more, or are imitated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from surreal.base.types import Batch
from surreal.learner import DDPGLearner, DQNLearner
from surreal.model import DeterministicActorCritic, QFunction
from tests.pages import ROOT, read_page
from tests.unit.learner.off_policy.checks import BOX, HALF

MakeBatch = Callable[..., Batch]
IS_INTERVENTION = torch.arange(16) % 3 == 0


@pytest.fixture(scope="module")
def of_page() -> dict[str, Any]:
    (program,) = [
        block.text for block in read_page(ROOT / "docs" / "person.md") if "class WeighingLearner" in block.text
    ]
    found: dict[str, Any] = {"__name__": "my_learners"}
    exec(program, found)
    return found


def with_interventions(batch: Batch, **extras: torch.Tensor) -> Batch:
    return batch._replace(extras={**batch.extras, **extras, "is_intervention": IS_INTERVENTION})


@pytest.mark.parametrize("weight", [None, 0.5])
def test_interventions_have_four_times_the_weight(
    of_page: dict[str, Any], make_batch: MakeBatch, weight: float | None
) -> None:
    given = make_batch(weight=weight)
    weights = (1.0 if weight is None else weight) * torch.where(IS_INTERVENTION, 4.0, 1.0)
    models = [QFunction([8], action_space=2, seed=0) for _ in range(2)]
    of_page["WeighingLearner"](models[0]).optimize(0, with_interventions(given))
    DQNLearner(models[1]).optimize(0, with_interventions(given, weight=weights))
    for name, tensor in models[1].tensors().items():
        torch.testing.assert_close(models[0].tensors()[name], tensor)


def test_what_a_person_did_is_imitated(of_page: dict[str, Any], make_continuous: MakeBatch) -> None:
    batch = with_interventions(make_continuous())
    losses = []
    for cls in (DDPGLearner, of_page["CloningLearner"]):
        model = DeterministicActorCritic((8,), action_space=BOX, seed=0)
        learner = cls(model, gradients_norm_clipping=None, initial_learning_rate=1e-30)
        learner.optimize(0, batch)
        losses.append(learner.reading["policy_loss"])
    action = model(batch.obs).detach()
    distance = sum(
        float(((action[i, j] - batch.action[i, j]) / HALF[j]) ** 2) / 2
        for i in range(16) for j in range(2) if IS_INTERVENTION[i]
    )  # fmt: skip
    assert losses[1] == pytest.approx(losses[0] + distance / 16, rel=1e-4)
