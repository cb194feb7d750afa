"""The actor-critic: what it gives for each kind of action, and what it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.model import ActorCritic, Categorical, Normal
from surreal.specs import ObsSpec

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


def test_an_lstm_stands_between_torso_and_both_heads() -> None:
    model = ActorCritic([8], action_space=spaces.Discrete(3), use_lstm=True, lstm_size=6, obs_spec=OBS)
    (policy, value), state = model(torch.randn(2, 4), torch.zeros(2, 2, 6))
    assert (policy.mode().shape, value.shape, state.shape) == ((2,), (2,), (2, 2, 6))


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
