"""Actions between agents and environments: every flat action is one legal nested action."""

from __future__ import annotations

import numpy as np
import pytest
import toy_envs
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from surreal.base.errors import EnvError
from surreal.envs.actions import ActionAdapter, flat_mask, mask_width

SPACES = {
    **toy_envs.ACTIONS,
    "shifted_multi": spaces.MultiDiscrete([2, 3], start=[4, -1]),
    "grid": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "deep": spaces.Dict(
        {"a": spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary((2, 2)))), "b": spaces.Discrete(2)}
    ),
    "mixed": spaces.Tuple((spaces.Box(0, 1, (2, 2)), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3))),
}


@pytest.mark.parametrize("name", SPACES)
def test_flat_actions_are_legal_as_rows_and_as_a_batch(name: str) -> None:
    space = SPACES[name]
    adapter = ActionAdapter(space)
    adapter.space.seed(0)
    actions = np.array([adapter.space.sample() for _ in range(20)], adapter.dtype)
    assert all(space.contains(row) for row in adapter.rows(actions))
    assert batch_space(space, 20).contains(adapter.batch(actions))
    assert all(space.contains(row) for row in adapter.rows(adapter.default()[None]))


def test_a_nested_discrete_space_is_multi_discrete() -> None:
    adapter = ActionAdapter(SPACES["deep"])
    assert adapter.space == spaces.MultiDiscrete([3, 2, 2, 2, 2, 2])
    (action,) = adapter.rows(np.array([[1, 1, 0, 0, 1, 1]]))
    assert action["a"][0] == 3
    assert action["a"][1].tolist() == [[1, 0], [0, 1]]
    assert action["b"] == 1


def test_the_largest_score_picks_a_discrete_part() -> None:
    adapter = ActionAdapter(toy_envs.ACTIONS["dict"])
    assert isinstance(adapter.space, spaces.Box)
    (action,) = adapter.rows(np.array([[0.25, -1.0, 0.1, 0.7]], adapter.dtype))
    assert action["arm"].tolist() == [0.25, -1.0]
    assert action["grip"] == 1


def test_discrete_actions_count_from_zero() -> None:
    adapter = ActionAdapter(spaces.Discrete(3, start=5))
    assert adapter.space == spaces.Discrete(3)
    assert list(adapter.rows(np.array([0, 2]))) == [5, 7]


def test_samples_beyond_the_bounds_reach_the_environment_cut_to_them() -> None:
    adapter = ActionAdapter(spaces.Box(-1.0, np.array([2.0, np.inf], np.float32), (2,)))
    actions = np.array([[3.0, 9.0], [-3.0, 0.5]], np.float32)
    assert [row.tolist() for row in adapter.rows(actions)] == [[2.0, 9.0], [-1.0, 0.5]]
    assert actions[0, 0] == 3.0, "what is recorded stays as it was sampled"


def test_masks_are_flat_booleans() -> None:
    assert mask_width(spaces.Discrete(4)) == 4
    assert mask_width(spaces.MultiDiscrete([2, 3])) == 5
    assert mask_width(toy_envs.BOX) == 0
    assert flat_mask((np.array([0, 1]), np.array([1, 0, 1])), 5).tolist() == [False, True, True, False, True]


def test_spaces_without_arrays_are_refused() -> None:
    with pytest.raises(EnvError, match="not supported"):
        ActionAdapter(spaces.Tuple((spaces.Discrete(2), spaces.Text(3))))
