"""Off-policy actor-critics: what actor and critics give, how they are scaled, and that they share nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.model import (
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    OffPolicyActorCritic,
    SoftActorCritic,
    SquashedNormal,
)

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 10], np.float32))
CASES: list[tuple[type[OffPolicyActorCritic], spaces.Space[Any]]] = [
    (DeterministicActorCritic, BOX),
    (SoftActorCritic, BOX),
    (DiscreteSoftActorCritic, spaces.Discrete(3)),
]


def made(cls: type[OffPolicyActorCritic] = DeterministicActorCritic, space: Any = BOX, **options: Any) -> Any:
    return cls([8, 6], action_space=space, obs_spec=OBS, seed=0, **options)


def test_actions_reach_both_bounds_of_each_component_and_not_beyond() -> None:
    model = made()
    with torch.no_grad():
        actions = torch.stack([model(sign * 1e4 * torch.randn(1000, 4)) for sign in (-1, 1)]).flatten(0, 1)
    low, high = torch.from_numpy(BOX.low), torch.from_numpy(BOX.high)
    torch.testing.assert_close(actions.amin(0), low)
    torch.testing.assert_close(actions.amax(0), high)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_critic_is_a_network_of_its_own(layer_norm: bool) -> None:
    model = made(critics=3, layer_norm=layer_norm)
    obs, action = torch.randn(5, 4), torch.rand(5, 2) * 4
    values = model.critic(obs, action)
    assert values.shape == (3, 5)
    scaled = (action - torch.tensor([1.0, 5.0])) / torch.tensor([2.0, 5.0])
    for member in range(3):
        features = torch.cat((obs, scaled), 1)
        for layer in (*model.critic.dense.hidden, model.critic.dense.output):
            features = features @ layer.weight[member] + layer.bias[member]
            if layer is not model.critic.dense.output:
                if layer_norm:
                    features = torch.nn.functional.layer_norm(features, features.shape[-1:])
                features = features.relu()
        torch.testing.assert_close(values[member], features[:, 0])
    torch.testing.assert_close(model.critic.first(obs, action), values[0])
    assert not torch.allclose(values[0], values[1])


@pytest.mark.parametrize(("cls", "space"), CASES)
def test_actor_and_critics_share_no_parameter_and_agents_compute_the_actor_alone(
    cls: type[OffPolicyActorCritic], space: Any
) -> None:
    model = made(cls, space)
    names = set(dict(model.named_parameters()))
    assert names == {name for name in names if name.startswith(("actor.", "critic."))}
    output = model(torch.randn(3, 4))
    loss: Tensor = output.sum() if isinstance(output, Tensor) else output.log_probability(output.sample()).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert {name for name, parameter in model.named_parameters() if parameter.grad is None} == {
        name for name in names if name.startswith("critic.")
    }


@pytest.mark.parametrize(("cls", "space"), CASES)
def test_parameters_make_a_model_that_knew_no_observation(cls: type[OffPolicyActorCritic], space: Any) -> None:
    spec = ObsSpec.from_obs({"image": np.zeros((2, 12, 12), np.uint8), "speed": np.zeros(3)})
    options: dict[str, Any] = {"convolutions": [{"n_filters": 3, "filter_size": 3, "stride": 2}], "layer_norm": True}
    theirs = cls([8], action_space=space, obs_spec=spec, **options)
    ours = cls([8], action_space=space, **options)
    ours.load_tensors(theirs.tensors(), header=theirs.header())
    obs = {"image": torch.randint(0, 255, (3, 2, 12, 12), dtype=torch.uint8), "speed": torch.randn(3, 3)}
    first, second = ours(obs), theirs(obs)
    if not isinstance(first, Tensor):
        first, second = first.mode(), second.mode()
    torch.testing.assert_close(first, second)


def test_a_copied_critic_is_a_target_of_its_own() -> None:
    model = made()
    target = copy.deepcopy(model.critic)
    with torch.no_grad():
        model.critic.dense.output.bias.add_(1.0)
    obs, action = torch.randn(5, 4), torch.randn(5, 2)
    torch.testing.assert_close(model.critic(obs, action), target(obs, action) + 1.0)


def test_soft_expectation_is_the_smaller_value_of_a_drawn_action() -> None:
    model = made(SoftActorCritic)
    obs = torch.randn(6, 4)
    outputs, log_probability = model.expect(model.critic, obs, torch.Generator().manual_seed(3))
    value = model.critic.output.climbed(outputs)
    policy: SquashedNormal = model(obs)
    action, log_density = policy.draw(torch.Generator().manual_seed(3))
    torch.testing.assert_close(value, torch.minimum(*model.critic(obs, action)))
    # The density of an action that spans 2 is larger than that of one that spans 4 and 10.
    torch.testing.assert_close(log_probability, log_density + np.log(2.0) + np.log(5.0))
    assert model.target_entropy == -2.0


def test_discrete_expectation_is_a_sum_over_legal_actions() -> None:
    model = made(DiscreteSoftActorCritic, spaces.Discrete(3))
    obs, legal = torch.randn(2, 4), torch.tensor([[True, False, True], [False, False, False]])
    outputs, log_probability = model.expect(model.critic, obs, None, legal)
    value = outputs.squeeze()
    logits = model.actor.body(obs)
    for row, actions in enumerate(([0, 2], [0, 1, 2])):
        probability = logits[row, actions].softmax(0)
        smaller = model.critic.all_actions(obs).amin(0)[row, actions]
        assert value[row].item() == pytest.approx((probability * smaller).sum().item(), abs=1e-5)
        assert log_probability[row].item() == pytest.approx((probability * probability.log()).sum().item(), abs=1e-5)


def test_discrete_critics_value_the_action_taken() -> None:
    model = made(DiscreteSoftActorCritic, spaces.Discrete(3))
    obs, action = torch.randn(4, 4), torch.tensor([0, 2, 1, 1])
    torch.testing.assert_close(model.critic(obs, action), model.critic.all_actions(obs)[:, torch.arange(4), action])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(2),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 9, (2,), np.int64),
        spaces.Box(-1, 1, (2, 2)),
    ],
)
def test_spaces_without_an_actor_are_refused_at_once(space: spaces.Space[Any]) -> None:
    with pytest.raises(ValueError, match="actions are"):
        DeterministicActorCritic(action_space=space)
    with pytest.raises(ValueError, match="actions are"):
        DiscreteSoftActorCritic(action_space=spaces.Box(-1, 1, (2,)))


def test_critics_may_have_other_layers_than_the_actor() -> None:
    model = made(critic_hiddens=[20])
    assert [layer.weight.shape[2] for layer in model.critic.dense.hidden] == [20]
    assert [layer.out_features for layer in model.actor.body.hidden] == [8, 6]


@pytest.mark.parametrize("kernel", ["rbf", "rbf2d"])
@pytest.mark.parametrize(("cls", "space"), CASES)
def test_activations_may_be_learned_in_actor_and_critics(
    cls: type[OffPolicyActorCritic], space: Any, kernel: str
) -> None:
    model = made(cls, space, activation={"type": "kaf", "size": 5, "kernel": kernel}, layer_norm=True)
    obs, action = torch.randn(5, 4), torch.zeros(5, *space.shape, dtype=torch.float32 if space.shape else torch.int64)
    output = model.actor(obs)
    said = output if isinstance(output, Tensor) else output.log_probability(action)
    loss = said.sum() + model.critic(obs, action).sum()
    named = {name: parameter for name, parameter in model.named_parameters() if name.endswith("alpha")}
    assert {name.partition(".")[0] for name in named} == {"actor", "critic"}
    for gradient in torch.autograd.grad(loss, list(named.values())):
        assert gradient.any()


def test_each_critic_has_learned_activations_of_its_own() -> None:
    """Changing those of the second critic changes the second alone."""
    model = made(activation="kaf")
    obs, action = torch.randn(5, 4), torch.rand(5, 2)
    before = model.critic(obs, action)
    with torch.no_grad():
        for kaf in model.critic.dense.learned:
            kaf.alpha[1].neg_()
    after = model.critic(obs, action)
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])
    torch.testing.assert_close(model.critic.first(obs, action), before[0])
