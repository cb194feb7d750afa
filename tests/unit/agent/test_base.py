"""The agent base: one observation or a batch, modes, hooks, and the version that acted."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from surreal.agent import ActContext, Agent
from surreal.base.errors import ContractError
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec

DEADLINE_S = 20.0


class Recorder(Agent):
    """Returns what it is told to, and remembers what it was called with."""

    def __init__(self, result: Any = None, obs_spec: ObsSpec | None = None) -> None:
        super().__init__(Module(), obs_spec=obs_spec)
        self.result = result
        self.calls: list[dict[str, Any]] = []
        self.initialized = 0

    def initialize(self) -> None:
        self.initialized += 1

    def _act(self, obs: Any, explore: np.ndarray, context: ActContext) -> Any:
        self.calls.append({"obs": obs, "explore": explore, "slots": context.slots, "is_first": context.is_first})
        return np.arange(len(explore)) if self.result is None else self.result


def test_one_observation_gives_a_python_number() -> None:
    agent = Recorder()
    action = agent.act(np.zeros(4, dtype=np.float32))
    assert action == 0
    assert type(action) is int
    assert agent.calls[0]["obs"].shape == (1, 4)


def test_a_batch_gives_an_array() -> None:
    agent = Recorder()
    agent.act(np.zeros(4))
    np.testing.assert_array_equal(agent.act(np.zeros((3, 4))), [0, 1, 2])
    with pytest.raises(ValueError, match=r"has shape \[3, 4, 1\]; it must be \[4\]"):
        agent.act(np.zeros((3, 4, 1)))


def test_the_spec_tells_a_batch_from_the_first_call_on() -> None:
    agent = Recorder(obs_spec=ObsSpec.from_obs(np.zeros(4)))
    np.testing.assert_array_equal(agent.act(np.zeros((3, 4))), [0, 1, 2])
    assert agent.act(np.zeros(4)) == 0


def test_an_episode_begins_with_the_first_call_after_reset_and_where_told() -> None:
    agent = Recorder(obs_spec=ObsSpec.from_obs(np.zeros(4)))
    agent.act(np.zeros(4))
    agent.act(np.zeros(4))
    agent.reset()
    agent.act(np.zeros((2, 4)))
    agent.act(np.zeros((2, 4)))
    agent.act(np.zeros((2, 4)), first=np.array([False, True]))
    found = [call["is_first"].tolist() for call in agent.calls]
    assert found == [[True], [False], [True, True], [False, False], [False, True]]


def test_nested_observations_and_scalars() -> None:
    agent = Recorder()
    assert agent.act({"b": np.zeros((2, 2)), "a": 3}) == 0
    seen = agent.calls[0]["obs"]
    assert seen["a"].shape == (1,)
    assert seen["b"].shape == (1, 2, 2)
    assert list(agent.act({"b": np.zeros((5, 2, 2)), "a": np.zeros(5, dtype=int)})) == [0, 1, 2, 3, 4]


def test_an_array_action_stays_an_array() -> None:
    agent = Recorder(result=torch.tensor([[0.5, -0.5]]))
    np.testing.assert_array_equal(agent.act([1.0, 2.0]), [0.5, -0.5])


def test_eval_mode_explores_in_no_row() -> None:
    agent = Recorder()
    rows = np.array([True, False])
    agent.act_batch(np.zeros((2, 4)), rows, np.array([7, 3]), np.array([True, False]))
    agent.set_mode("eval")
    agent.act_batch(np.zeros((2, 4)), rows, np.array([7, 3]), np.array([True, False]))
    assert [list(call["explore"]) for call in agent.calls] == [[True, False], [False, False]]
    assert list(agent.calls[0]["slots"]) == [7, 3]
    assert list(agent.calls[0]["is_first"]) == [True, False]
    assert list(rows) == [True, False]
    assert agent.steps == 2
    with pytest.raises(ValueError, match="'training', 'eval' or 'sample'"):
        agent.set_mode("test")


def test_extras_are_handed_on_as_arrays() -> None:
    agent = Recorder(result=(torch.tensor([1, 0]), {"log_probability": torch.tensor([-0.5, -1.0])}))
    action = agent.act_batch(np.zeros((2, 4)), np.ones(2, bool), np.arange(2), np.zeros(2, bool))
    np.testing.assert_array_equal(action.actions, [1, 0])
    np.testing.assert_allclose(action.extras["log_probability"], [-0.5, -1.0])


def test_wrong_number_of_actions_is_refused() -> None:
    agent = Recorder(result=np.zeros(3))
    with pytest.raises(ValueError, match="gave 3 actions for 2 rows"):
        agent.act_batch(np.zeros((2, 4)), np.ones(2, bool), np.arange(2), np.zeros(2, bool))


def test_initialize_is_called_once_before_the_first_action() -> None:
    agent = Recorder()
    assert agent.initialized == 0
    for _ in range(3):
        agent.act(np.zeros(4))
    assert agent.initialized == 1


def test_read_only_observations_are_accepted() -> None:
    obs = np.zeros((2, 4), dtype=np.float32)
    obs.flags.writeable = False
    assert len(Recorder().act_batch(obs, np.ones(2, bool), np.arange(2), np.zeros(2, bool)).actions) == 2


def test_a_model_that_is_kept_up_to_date_no_more_stops_its_agent() -> None:
    agent = Recorder()
    agent.act(np.zeros(4))
    error = ContractError("fc1.weight is another")
    agent.model.fail(error)
    for _ in range(2):
        with pytest.raises(ContractError) as caught:
            agent.act(np.zeros(4))
        assert caught.value is error
    assert len(agent.calls) == 1
    agent.model.fail(None)
    assert agent.act(np.zeros(4)) == 0


class Sum(Module):
    """Outputs the sum of its weights, which are all the version."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))


class SumAgent(Agent):
    def _act(self, obs: Any, explore: np.ndarray) -> Any:
        weight = self.model.get_parameter("weight")
        half = len(weight) // 2
        return torch.stack([weight[:half].sum() + weight[half:].sum()]).expand(len(explore)).clone()


def test_actions_and_version_belong_together_while_another_thread_swaps() -> None:
    model = Sum(20_000)
    agent = SumAgent(model)
    stop = threading.Event()

    def swap() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            model.load_tensors({"weight": torch.full((20_000,), float(version % 100))}, version)

    swapper = threading.Thread(target=swap)
    timer = threading.Timer(DEADLINE_S, stop.set)
    swapper.start()
    timer.start()
    seen: set[int] = set()
    try:
        while len(seen) < 30 and not stop.is_set():
            action = agent.act_batch(np.zeros((2, 1)), np.ones(2, bool), np.arange(2), np.zeros(2, bool))
            seen.add(action.version)
            np.testing.assert_array_equal(action.actions, 20_000.0 * (action.version % 100))
    finally:
        stop.set()
        timer.cancel()
        swapper.join(DEADLINE_S)
    assert len(seen) == 30
