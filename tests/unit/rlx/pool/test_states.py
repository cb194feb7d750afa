"""States of all forms brought into an observation space, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.rlx.pool.stacking import FrameStacker
from surreal.rlx.pool.states import StateReader
from surreal.rlx.protocol.errors import RlxRequestError
from surreal.rlx.protocol.images import Image

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (2, 3), np.uint8)
PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)
NESTED = spaces.Dict({"pos": VECTOR, "more": spaces.Tuple([spaces.Discrete(4), spaces.Box(0, 1, (), np.float64)])})


@pytest.mark.parametrize(
    ("space", "state", "expected"),
    [
        (VECTOR, [1, 2.5, 3], [1, 2.5, 3]),
        (VECTOR, np.array([1, 2, 3]), [1, 2, 3]),
        (VECTOR, np.array([[1.0, 2, 3]]), [1, 2, 3]),
        (VECTOR, [True, False, True], [1, 0, 1]),
        (VECTOR, np.array([1, 2, 3], ">f8"), [1, 2, 3]),
        (PICTURE, PIXELS, PIXELS),
        (PICTURE, PIXELS.tolist(), PIXELS),
        (PICTURE, PIXELS.astype(float), PIXELS),
        (PICTURE, Image("L", PIXELS), PIXELS),
        (spaces.Box(0, 1, (2, 3, 1), np.float32), Image("L", PIXELS), (PIXELS / np.float32(255))[..., None]),
        (spaces.Box(0, 1, (1, 2, 3), bool), Image("1", PIXELS > 2), (PIXELS > 2)[None]),
        (spaces.Discrete(4, start=2), 5, [5]),
        (spaces.Discrete(4), 3.0, [3]),
        (spaces.Discrete(4), np.int64(0), [0]),
        (spaces.Discrete(1), None, [0]),
        (spaces.Discrete(1, start=5), [], [5]),
        (spaces.Box(0, 1, (), np.float32), 0.5, [0.5]),
        (spaces.Box(0, 1, (0,), np.float32), None, []),
        (spaces.Box(0, 1, (0,), np.float32), [], []),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [1, 2]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    ],
)
def test_state_that_fits(space: Any, state: Any, expected: Any) -> None:
    (leaf,) = StateReader(space).read(state)
    assert leaf.dtype == space.dtype
    assert leaf.shape == (space.shape or (1,))
    np.testing.assert_array_equal(leaf, np.asarray(expected, space.dtype))


def test_array_that_fits_is_not_copied() -> None:
    state = np.zeros(3, np.float32)
    assert StateReader(VECTOR).read(state)[0] is state


def test_nested_state_is_taken_apart_in_the_order_of_the_spec() -> None:
    reader = StateReader(NESTED)
    leaves = reader.read({"pos": [1, 2, 3], "more": [2, 0.5]})
    assert [leaf.name for leaf in reader.spec.leaves] == ["more.0", "more.1", "pos"]
    assert [leaf.tolist() for leaf in leaves] == [[2], [0.5], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("space", "state", "message"),
    [
        (VECTOR, [1, 2], r"must have shape \(3,\) and dtype float32, got shape \(2,\) and dtype int64"),
        (VECTOR, None, "got None"),
        (VECTOR, [], r"got shape \(0,\)"),
        (VECTOR, "abc", "got 'abc'"),
        (VECTOR, ["1", "2", "3"], "got shape"),
        (VECTOR, [[1], [2, 3]], "a list that is no array"),
        (VECTOR, {"b" * 100: 1}, "a dict with keys"),
        (VECTOR, [10**30, 1, 1], "got shape"),
        (VECTOR, np.zeros(3, complex), "complex128"),
        (PICTURE, [[0, 1, 2], [3, 4, 256]], "values that it cannot hold"),
        (PICTURE, [[0, 1, 2], [3, 4, -1]], "values that it cannot hold"),
        (PICTURE, np.full((2, 3), 0.5), "values that it cannot hold"),
        (PICTURE, np.full((2, 3), np.nan), "values that it cannot hold"),
        (PICTURE, np.zeros((3, 2)), "got shape"),
        (spaces.Discrete(4), 4, r"from \[0\] to \[3\], got \[4\]"),
        (spaces.Discrete(4), None, "got None"),
        (spaces.MultiDiscrete([2, 3]), [2, 0], "got"),
        (spaces.MultiBinary(2), [2, 0], "got"),
        (NESTED, [1], "state must be a dict with keys"),
        (NESTED, {"pos": [1, 2, 3]}, "with keys"),
        (NESTED, {"pos": [1, 2, 3], "more": [1]}, r"state.more must be a list of 2 items, got 1 items"),
        (NESTED, {"pos": [1, 2, 3], "more": 5}, "got int"),
        (NESTED, {"pos": [1, 2], "more": [1, 0.5]}, "state pos must have shape"),
    ],
)
def test_state_that_does_not_fit_says_what_was_expected_and_what_came(space: Any, state: Any, message: str) -> None:
    with pytest.raises(RlxRequestError, match=message) as caught:
        StateReader(space).read(state)
    assert len(str(caught.value)) < 400


def test_space_without_arrays_is_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        StateReader(spaces.Text(5))


def test_frames_are_stacked_oldest_first_and_the_first_fills_the_stack() -> None:
    reader = StateReader(spaces.Box(0, 9, (2,), np.float32))
    stacker = FrameStacker(reader.spec.leaves[0], 3)
    stacks = [stacker.push(reader.read([i, i]), is_first=i in (1, 5))[0][:, 0].tolist() for i in range(1, 7)]
    assert stacks == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6]]
