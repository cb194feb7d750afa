"""Steps that something else chose may weigh more in what critics learn, and may be cloned by the policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.types import Batch
from surreal.learner import (
    CQLLearner,
    DDPGLearner,
    DQNLearner,
    IQLLearner,
    QuantileDQNLearner,
    SACLearner,
    TD3BCLearner,
)
from surreal.model import (
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    ImplicitActorCritic,
    QFunction,
    QuantileQFunction,
    SoftActorCritic,
)
from tests.unit.learner.off_policy.checks import BOX, HALF, tensors_of

MakeBatch = Callable[..., Batch]
IS_INTERVENTION = torch.arange(16) % 3 == 0
KINDS: dict[str, tuple[Any, Any]] = {
    "dqn": (DQNLearner, QFunction),
    "quantile": (QuantileDQNLearner, QuantileQFunction),
    "td3": (DDPGLearner, DeterministicActorCritic),
    "td3bc": (TD3BCLearner, DeterministicActorCritic),
    "sac": (SACLearner, SoftActorCritic),
    "cql": (CQLLearner, SoftActorCritic),
    "iql": (IQLLearner, ImplicitActorCritic),
}
ACTOR_CRITICS = [kind for kind in KINDS if kind not in ("dqn", "quantile", "iql")]
STILL = {"initial_learning_rate": 1e-30, "gradients_norm_clipping": None}


def made(kind: str, **options: Any) -> Any:
    cls, model = KINDS[kind]
    space = spaces.Discrete(2) if kind in ("dqn", "quantile") else BOX
    return cls(model((8,), action_space=space, seed=0), **options)


@pytest.fixture
def make(make_batch: MakeBatch, make_continuous: MakeBatch) -> MakeBatch:
    def make(kind: str, is_marked: bool = True, **options: Any) -> Batch:
        batch = (make_batch if kind in ("dqn", "quantile") else make_continuous)(**options)
        return batch._replace(extras={**batch.extras, **({"is_intervention": IS_INTERVENTION} if is_marked else {})})

    return make


def assert_same(learner: Any, other: Any) -> None:
    expected, found = tensors_of(other), tensors_of(learner)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


@pytest.mark.parametrize("given", [None, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_of_an_intervention_multiplies_that_of_its_row(kind: str, make: MakeBatch, given: float) -> None:
    batch = make(kind, weight=given)
    weight = torch.tensor([(given or 1.0) * (4.0 if IS_INTERVENTION[row] else 1.0) for row in range(16)])
    weighing, plain, unweighted = made(kind, intervention_weight=4.0), made(kind), made(kind)
    weighing.optimize(0, batch)
    plain.optimize(0, batch._replace(extras={"weight": weight}))
    unweighted.optimize(0, batch)
    assert_same(weighing, plain)
    assert weighing.reading["loss"] != unweighted.reading["loss"]


def test_the_weighted_loss_is_the_formula(make: MakeBatch) -> None:
    batch, learner = make("td3"), made("td3", intervention_weight=0.25, **STILL)
    learner.optimize(0, batch)
    outputs, target = (each.detach() for each in learner.estimate(batch))
    loss = 0.0
    for row in range(16):
        for member in range(2):
            squared = float((outputs[member, row, 0] - target[row, 0]) ** 2)
            loss += (0.25 if IS_INTERVENTION[row] else 1.0) * squared / 16
    assert learner.reading["loss"] == pytest.approx(loss, rel=1e-4)


def naive_cloning(model: Any, batch: Batch) -> float:
    """Return the mean over the rows of half the squared distance, or of -log p, of interventions; 0 of other rows."""
    with torch.no_grad():
        policy, total = model(batch.obs), 0.0
    for row in range(16):
        if not IS_INTERVENTION[row]:
            continue
        for part in range(2):
            if isinstance(policy, Tensor):
                total += float(((policy[row, part] - batch.action[row, part]) / HALF[part]) ** 2) / 2
                continue
            low = float(BOX.low[part])
            scaled = (float(batch.action[row, part]) - low) / float(HALF[part]) - 1.0
            mean, log_sigma = float(policy.normal.mean[row, part]), float(policy.normal.log_sigma[row, part])
            distance = (math.atanh(scaled) - mean) / math.exp(log_sigma)
            total += distance**2 / 2 + log_sigma + math.log(2 * math.pi) / 2
            total += math.log(1 - scaled**2) + math.log(float(HALF[part]))  # d action / d u
    return total / 16


@pytest.mark.parametrize("kind", ACTOR_CRITICS)
def test_cloning_adds_its_loss_of_interventions_to_the_policys(kind: str, make: MakeBatch) -> None:
    batch, losses = make(kind), []
    for cloning in (0.0, 3.0):
        learner = made(kind, intervention_cloning=cloning, policy_delay=1, **STILL)
        learner.optimize(0, batch)
        losses.append(learner.reading["policy_loss"])
    assert losses[1] - losses[0] == pytest.approx(3.0 * naive_cloning(learner.model, batch), rel=1e-3)


def test_cloning_moves_a_discrete_policy_toward_what_a_person_chose(make_batch: MakeBatch) -> None:
    batch = make_batch()._replace(action=torch.ones(16, dtype=torch.int64), reward=torch.zeros(16))
    batch = batch._replace(discount=torch.zeros(16), extras={"is_intervention": IS_INTERVENTION})
    model = DiscreteSoftActorCritic((8,), action_space=spaces.Discrete(2), seed=0)
    learner = SACLearner(model, intervention_cloning=10.0, temperature=0.01, initial_learning_rate=1e-2)
    for i in range(100):
        learner.optimize(i, batch)
    probability = model(batch.obs).logits.softmax(1)[:, 1]
    assert (probability[IS_INTERVENTION] > 0.9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_change_nothing_and_neither_do_options_without_the_column(kind: str, make: MakeBatch) -> None:
    marked, unmarked = make(kind), make(kind, is_marked=False)
    options = {"intervention_weight": 4.0, **({"intervention_cloning": 1.0} if kind in ACTOR_CRITICS else {})}
    learners = [made(kind), made(kind), made(kind, **options)]
    for learner, batch in zip(learners, (unmarked, marked, unmarked), strict=True):
        for i in range(2):
            learner.optimize(i, batch)
        assert_same(learner, learners[0])
