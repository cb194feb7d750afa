"""Actions and values that do not fit the environment are an error that names who gave them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.agent import Agent, QAgent
from surreal.base.errors import UserCodeError
from surreal.base.pytorch import Module


class Wide(Module):
    """Gives as many values as it is told to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(obs), self.width)


class Given(Agent):
    """Gives the actions that a test wants."""

    def __init__(self, actions: Any) -> None:
        super().__init__(Wide(1))
        self.actions = actions

    def _act(self, obs: Any, explore: Any) -> Any:  # type: ignore[override]
        return self.actions


def act(agent: Agent, space: gymnasium.Space[Any], rows: int = 2) -> Any:
    agent.expect_actions(space)
    flags = np.zeros(rows, np.bool_)
    return agent.act_batch(np.zeros((rows, 3), np.float32), flags, np.arange(rows), flags).actions


@pytest.mark.parametrize("width", [1, 3])
def test_model_with_another_number_of_values_than_there_are_actions_is_named(width: int) -> None:
    with pytest.raises(
        UserCodeError, match=rf"Wide\.forward \(test_fitting\.py line \d+\) .*\(2, {width}\).*2 actions"
    ):
        act(QAgent(Wide(width)), spaces.Discrete(2))
    assert act(QAgent(Wide(2)), spaces.Discrete(2)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("space", "actions", "problem"),
    [
        (spaces.Discrete(2), np.array([0, 2]), r"action 2, which is not in Discrete\(2\)"),
        (spaces.Discrete(2), np.array([-1, 0]), "action -1"),
        (spaces.Discrete(2), np.array([0.0, 1.0]), "dtype float64"),
        (spaces.Discrete(2), np.array([[0], [1]]), r"shape \(2, 1\) for 2 rows"),
        (spaces.Discrete(2), np.array([0]), r"shape \(1,\) for 2 rows"),
        (spaces.MultiDiscrete([2, 3]), np.array([[0, 1], [1, 3]]), "action 3"),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 2]]), "action 2"),
        (spaces.Box(-1, 1, (1,)), np.array([[0.0], [np.nan]]), "action nan"),
        (spaces.Box(-1, 1, (1,)), np.array([0.0, 0.0]), r"shape \(2,\)"),
    ],
)
def test_actions_that_do_not_fit_are_refused_with_the_agents_file_and_line(
    space: gymnasium.Space[Any], actions: Any, problem: str
) -> None:
    with pytest.raises(UserCodeError, match=rf"Given\._act \(test_fitting\.py line \d+\) .*{problem}"):
        act(Given(actions), space)


def test_actions_that_fit_are_passed_on() -> None:
    for space, actions in [
        (spaces.Discrete(2), np.array([0, 1], np.int32)),
        (spaces.MultiDiscrete([2, 3]), np.array([[0, 1], [1, 2]])),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 1]], np.bool_)),
        (spaces.Box(-1, 1, (1,)), np.array([[0.0], [5.0]])),  # wrappers clip it
    ]:
        np.testing.assert_array_equal(act(Given(actions), space), actions)
