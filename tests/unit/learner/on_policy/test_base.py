"""What learners of a policy and its value share: how entropy is counted, and learning rates of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from gymnasium import spaces

from surreal.learner import A2CLearner, ActorCriticLearner, PolicyGradientLearner, PPOLearner, VTraceLearner
from surreal.learner.on_policy.evaluating import filtered

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play

LEARNERS: dict[str, Any] = {
    "pg": PolicyGradientLearner,
    "a2c": A2CLearner,
    "vtrace": VTraceLearner,
    "ppo": lambda model, **options: PPOLearner(model, policy_iterations=1, mini_batch=None, **options),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    ("space", "components"),
    [(spaces.Discrete(3), 1), (spaces.Box(-1.0, 1.0, (2,)), 2), (spaces.MultiBinary(2), 2)],
)
def test_entropy_of_the_origin_is_that_of_one_component(
    space: spaces.Space[Any], components: int, name: str, make_model: MakeModel, play: Play
) -> None:
    found = {}
    for entropy_type in ("Gauss", "Origin"):
        model = make_model(space=space)
        learner = LEARNERS[name](model, entropy_type=entropy_type, metrics_interval=1)
        found[entropy_type] = learner.optimize(0, play(model))["entropy"]
    assert found["Origin"] == pytest.approx(found["Gauss"] / components, rel=1e-5)


def test_entropy_equals_a_naive_loop(make_model: MakeModel, play: Play) -> None:
    """The normal's 0.5 (log(2 pi sigma^2) + 1) of each component, over steps."""
    model = make_model(space=spaces.Box(-1.0, 1.0, (2,)), log_sigma=-0.5)
    batch = play(model)
    one = 0.5 * (float(torch.log(torch.tensor(2.0 * torch.pi))) - 1.0 + 1.0)
    for entropy_type, components in (("Gauss", 2), ("Origin", 1)):
        learner = A2CLearner(model, entropy_type=entropy_type)
        policy = model(batch.obs[:-1]).policy
        assert float(learner.entropy(policy, batch.action, batch.mask).detach()) == pytest.approx(components * one)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_value_of_its_own_may_have_a_learning_rate_of_its_own(name: str, make_model: MakeModel, play: Play) -> None:
    """The first step of Adam is as long as the learning rate, where there is a gradient."""
    model = make_model(value_hiddens=[8])
    before = {key: tensor.clone() for key, tensor in model.tensors().items()}
    learner = LEARNERS[name](model, initial_learning_rate=1e-3, critic_learning_rate=5e-3)
    learner.optimize(0, play(model))
    longest = {"value": 0.0, "policy": 0.0}
    for key, tensor in model.tensors().items():
        part = "value" if key.startswith("value_network.") else "policy"
        longest[part] = max(longest[part], float((tensor - before[key]).abs().max()))
    assert longest["value"] == pytest.approx(5e-3, rel=1e-2)
    assert longest["policy"] == pytest.approx(1e-3, rel=1e-2)


def test_two_learning_rates_give_the_gradients_that_one_gives(make_model: MakeModel, play: Play) -> None:
    models = []
    for rate in (None, 1e-3):
        model = make_model(value_hiddens=[8])
        options: Any = {"initial_learning_rate": 1e-3, "gradients_norm_clipping": None}
        learner = A2CLearner(model, critic_learning_rate=rate, **options)
        for i in range(3):
            learner.optimize(i, play(model, seed=i))
        models.append(model.tensors())
    for key, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][key])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"critic_learning_rate": 1e-3}, "no separate network for the value"),
        ({"critic_learning_rate": 0.0}, "critic_learning_rate is 0.0"),
        ({"entropy_type": "gauss"}, "entropy_type is 'gauss'; it must be Gauss or Origin"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str, make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match=message):
        A2CLearner(make_model(), **options)


class Earlier(ActorCriticLearner):
    """A copy of a learner of an earlier version, whose method was `improve`."""

    def improve(self, batch: Any) -> Any:
        self.seen = batch.reward
        return {}


class EarlierWithLearn(Earlier):
    def learn(self, i: int, batch: Any) -> Any:
        with filtered(self.model, batch, self.share_counts) as scaled:
            return self.improve(scaled)

    def improve(self, batch: Any) -> Any:
        return super().improve(batch)


@pytest.mark.parametrize("cls", [Earlier, EarlierWithLearn])
def test_copies_of_earlier_learners_see_rewards_filtered_once(cls: Any, make_model: Any, play: Any) -> None:
    model = make_model(normalize_rewards=True)
    learner, batch = cls(model), play(model)
    learner.optimize(0, batch)
    assert torch.equal(learner.seen, model.return_filter(batch.reward))
    assert float(model.return_filter.moments.count) == float(batch.mask.sum())
