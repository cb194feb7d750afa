"""The actor-critic: what it gives for each kind of action, and what it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.model import ActorCritic, Categorical, Normal

OBS = ObsSpec.from_obs(np.zeros(4))


@pytest.mark.parametrize("leading", [(5,), (3, 5)])
def test_policy_and_value_of_batches_and_sequences(leading: tuple[int, ...]) -> None:
    model = ActorCritic([8], action_space=spaces.Discrete(3), obs_spec=OBS)
    policy, value = model(torch.randn(*leading, 4))
    assert isinstance(policy, Categorical)
    assert policy.logits.shape == (*leading, 3)
    assert value.shape == leading


def test_continuous_actions_have_a_sigma_that_is_learned() -> None:
    model = ActorCritic([8], action_space=spaces.Box(-1, 1, (2,)), obs_spec=OBS)
    policy, _ = model(torch.randn(5, 4))
    assert isinstance(policy, Normal)
    policy.log_probability(policy.sample()).sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert grads["policy.log_sigma"] is not None
    assert grads["value.output.weight"] is None


def test_the_first_sigma_may_be_a_whole_number_as_yaml_reads_it() -> None:
    model = ActorCritic([8], action_space=spaces.Box(-1, 1, (2,)), log_sigma=-2, obs_spec=OBS)
    sigma = dict(model.named_parameters())["policy.log_sigma"]
    assert (sigma.dtype, sigma.tolist()) == (torch.float32, [-2.0, -2.0])


def test_an_lstm_stands_between_torso_and_both_heads() -> None:
    model = ActorCritic([8], action_space=spaces.Discrete(3), use_lstm=True, lstm_size=6, obs_spec=OBS)
    (policy, value), state = model(torch.randn(2, 4), torch.zeros(2, 2, 6))
    assert (policy.mode().shape, value.shape, state.shape) == ((2,), (2,), (2, 2, 6))


def test_a_value_of_its_own_shares_nothing_with_the_policy() -> None:
    model = ActorCritic([8], action_space=spaces.Discrete(3), value_hiddens=[5], obs_spec=OBS, seed=0)
    policy, value = model(torch.randn(6, 4))
    value.sum().backward()
    touched = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched == {"value_network"}
    policy.entropy().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("lstm", "shape"), [({}, (2, 12)), ({"lstm_type": "Dilated", "lstm_num_cores": 3}, (3, 2, 12))]
)
def test_recurrent_policy_and_value_of_their_own_keep_their_states_apart(
    lstm: dict[str, Any], shape: tuple[int, ...]
) -> None:
    options = {"action_space": spaces.Discrete(3), "use_lstm": True, "lstm_size": 6, "obs_spec": OBS, **lstm}
    model = ActorCritic([8], value_hiddens=[8], seed=0, **options)
    assert model.state_shape == shape
    obs, is_first = torch.randn(4, 2, 4), torch.zeros(4, 2, dtype=torch.bool)
    is_first[2, 0] = True
    (policy, value), after = model(obs, torch.zeros(2, *shape), is_first)
    state = torch.zeros(2, *shape)
    for t in range(4):
        (step_policy, step_value), state = model(obs[t], state, is_first[t])
        torch.testing.assert_close(step_value, value[t])
        torch.testing.assert_close(step_policy.logits, policy[t].logits)
    torch.testing.assert_close(state, after)


def test_orthogonal_values_have_their_gains_and_no_bias() -> None:
    model = ActorCritic([16, 8], action_space=spaces.Box(-1, 1, (2,)), orthogonal=True, log_sigma=-1.0, obs_spec=OBS)
    weights = dict(model.named_parameters())
    for name, gain in (("torso.dense.layers.0", 2**0.5), ("policy.output", 0.01), ("value.output", 1.0)):
        weight = weights[f"{name}.weight"].detach()
        square = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
        torch.testing.assert_close(square, gain**2 * torch.eye(len(square)), atol=1e-5, rtol=1e-4)
        assert not weights[f"{name}.bias"].any()
    assert (weights["policy.log_sigma"] == -1.0).all()


def test_a_seed_repeats_orthogonal_values_too() -> None:
    first, second = (
        ActorCritic([8], action_space=spaces.Discrete(3), orthogonal=True, obs_spec=OBS, seed=4, value_hiddens=[3])
        for _ in range(2)
    )
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_sigma_can_depend_on_the_state() -> None:
    model = ActorCritic([8], action_space=spaces.Box(-1, 1, (2,)), sigma="state", log_sigma=-1.0, obs_spec=OBS)
    policy, _ = model(torch.randn(50, 4))
    assert policy.mean.shape == policy.log_sigma.shape == (50, 2)
    assert policy.log_sigma.std(0).min() > 0.0
    with pytest.raises(ValueError, match="sigma is 'both'"):
        ActorCritic(action_space=spaces.Box(-1, 1, (2,)), sigma="both")


@pytest.mark.parametrize(
    ("space", "shape"), [(spaces.MultiDiscrete([3, 2]), (2,)), (spaces.MultiBinary(4), (4,)), (spaces.Discrete(2), ())]
)
def test_actions_of_every_discrete_kind_are_in_their_space(space: spaces.Space, shape: tuple[int, ...]) -> None:
    policy, _ = ActorCritic([8], action_space=space, obs_spec=OBS)(torch.randn(30, 4))
    for actions in (policy.sample(), policy.mode()):
        assert actions.shape == (30, *shape)
        assert all(space.contains(action) for action in actions.numpy().astype(space.dtype))
        assert policy.log_probability(actions).shape == (30,)


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=1), spaces.Box(0, 9, (2,), np.int64), spaces.Text(3)])
def test_spaces_without_a_policy_are_refused_at_once(space: spaces.Space) -> None:
    with pytest.raises(ValueError, match=r"must start at 0|there is no policy"):
        ActorCritic(action_space=space)


def test_parameters_make_a_model_that_knew_no_observation() -> None:
    spec = ObsSpec.from_obs({"a": np.zeros((2, 2), np.uint8), "b": (1.0, np.zeros(3))})
    theirs = ActorCritic([8], action_space=spaces.Discrete(3), obs_spec=spec)
    ours = ActorCritic([8], action_space=spaces.Discrete(3))
    ours.load_tensors(theirs.tensors(), header=theirs.header())
    assert ours.obs_spec == spec
