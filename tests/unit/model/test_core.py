"""The recurrent core against torch's own LSTM, and models that have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from surreal.base.specs import ObsSpec
from surreal.model import DilatedLSTMCore, LSTMCore, QFunction


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


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5])
def test_runs_between_beginnings_are_what_single_steps_give(share: float) -> None:
    core = LSTMCore(3, 5)
    rng = torch.Generator().manual_seed(4)
    features = torch.randn(24, 4, 3, generator=rng)
    is_first = torch.rand(24, 4, generator=rng) < share
    state = torch.randn(4, 2, 5, generator=rng)
    outputs, after = core(features, state, is_first)
    gradients = torch.autograd.grad(outputs.square().sum(), list(core.parameters()))
    steps = []
    for t in range(24):
        output, state = core(features[t], state, is_first[t])
        steps.append(output)
    torch.testing.assert_close(outputs, torch.stack(steps))
    torch.testing.assert_close(after, state)
    expected = torch.autograd.grad(torch.stack(steps).square().sum(), list(core.parameters()))
    torch.testing.assert_close(gradients, expected)


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


def test_a_dilated_core_updates_one_state_a_step_and_adds_up_their_outputs() -> None:
    core = DilatedLSTMCore(3, 5, num_cores=3)
    features = torch.randn(8, 2, 3)
    outputs, after = core(features, torch.zeros(2, 3, 2, 5))
    states = [(torch.zeros(2, 5), torch.zeros(2, 5)) for _ in range(3)]
    for t in range(8):
        states[t % 3] = core.cell(features[t], states[t % 3])
        torch.testing.assert_close(outputs[t], sum(output for output, _ in states))
    for place in range(3):  # the one whose turn is next stands first
        torch.testing.assert_close(after[:, place], torch.stack(states[(8 + place) % 3], dim=1))


def test_a_dilated_core_forgets_all_of_its_states_where_an_episode_begins() -> None:
    lstm: Any = {"use_lstm": True, "lstm_size": 4, "lstm_type": "Dilated", "lstm_num_cores": 3}
    model = QFunction([8], action_space=2, obs_spec=ObsSpec.from_obs(np.zeros(3)), seed=0, **lstm)
    assert model.state_shape == (3, 2, 4)
    obs, is_first = torch.randn(6, 2, 3), torch.zeros(6, 2, dtype=torch.bool)
    is_first[4, 1] = True
    q, _ = model(obs, torch.randn(2, 3, 2, 4), is_first)
    fresh, _ = model(obs[4:], torch.zeros(2, 3, 2, 4))
    torch.testing.assert_close(q[4:, 1], fresh[:, 1])
    assert not torch.allclose(q[4:, 0], fresh[:, 0])


@pytest.mark.parametrize("options", [{"lstm_type": "Diluted"}, {"lstm_type": "Dilated", "lstm_num_cores": 0}])
def test_an_impossible_core_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lstm_"):
        QFunction(action_space=2, use_lstm=True, **options)
