"""The recurrent core against torch's own LSTM, and models that have one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from surreal.model import LSTMCore, QFunction
from surreal.specs import ObsSpec


def test_sequences_are_those_of_torch() -> None:
    core = LSTMCore(3, 5)
    theirs = nn.LSTM(3, 5)
    theirs.load_state_dict({f"{name}_l0": tensor for name, tensor in core.cell.state_dict().items()})
    features, state = torch.randn(7, 2, 3), torch.randn(2, 2, 5)
    expected, (output, cell) = theirs(features, (state[:, 0][None], state[:, 1][None]))
    outputs, after = core(features, state)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, torch.stack((output[0], cell[0]), dim=1))


def test_an_episode_does_not_know_the_one_before() -> None:
    core = LSTMCore(3, 5)
    features = torch.randn(6, 2, 3)
    is_first = torch.zeros(6, 2, dtype=torch.bool)
    is_first[4, 1] = True
    outputs, _ = core(features, torch.randn(2, 2, 5), is_first)
    fresh, _ = core(features[4:], torch.zeros(2, 2, 5))
    torch.testing.assert_close(outputs[4:, 1], fresh[:, 1])
    assert not torch.allclose(outputs[4:, 0], fresh[:, 0])


def test_a_model_steps_as_it_unrolls() -> None:
    model = QFunction([8], action_space=2, use_lstm=True, lstm_size=4, obs_spec=ObsSpec.from_obs(np.zeros(3)), seed=0)
    assert model.state_shape == (2, 4)
    obs = torch.randn(5, 2, 3)
    state = torch.randn(2, 2, 4)
    unrolled, last = model(obs, state)
    for t in range(5):
        q, state = model(obs[t], state)
        torch.testing.assert_close(q, unrolled[t])
    torch.testing.assert_close(state, last)


def test_without_a_state_it_begins_with_a_cleared_one() -> None:
    model = QFunction([8], action_space=2, use_lstm=True, lstm_size=4, seed=0)
    obs = torch.randn(2, 3)
    torch.testing.assert_close(model(obs)[0], model(obs, torch.zeros(2, 2, 4))[0])


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lstm_size is 0"):
        QFunction(action_space=2, use_lstm=True, lstm_size=0)
