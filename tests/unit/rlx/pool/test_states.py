"""States of all forms brought into an observation space, and what does not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.rlx.pool.batches import FrameStacker
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.pool.states import StateReader
from surreal.rlx.protocol.arrays import Image
from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError

VECTOR = spaces.Box(-9, 9, (3,), np.float32)
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
        (VECTOR, [[1], [2, 3]], "a list that is not an array"),
        (VECTOR, {"b" * 100: 1}, "a dict with keys"),
        (VECTOR, [10**30, 1, 1], "got shape"),
        (VECTOR, np.zeros(3, complex), "complex128"),
        (PICTURE, [[0, 1, 2], [3, 4, 256]], "values that it cannot hold"),
        (PICTURE, [[0, 1, 2], [3, 4, -1]], "values that it cannot hold"),
        (PICTURE, np.full((2, 3), 0.5), "values that it cannot hold"),
        (PICTURE, np.full((2, 3), np.nan), "values that it cannot hold"),
        (PICTURE, np.zeros((3, 2)), "got shape"),
        (spaces.Discrete(4), 4, "is 4; it must be from 0 to 3"),
        (spaces.Discrete(4), None, "got None"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], r"state\[1\] is 3; it must be from 0 to 2"),
        (spaces.MultiBinary(2), [2, 0], "is 2; it must be from 0 to 1"),
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


UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)
HALF = spaces.Box(np.array([0, -5], np.float32), np.array([np.inf, 5], np.float32))


@pytest.mark.parametrize(
    ("space", "state", "message"),
    [
        (UNBOUNDED, [0.0, float("nan")], r"the state\[1\] is nan; it must be finite"),
        (UNBOUNDED, np.array([np.inf, 0], np.float32), r"the state\[0\] is inf"),
        (UNBOUNDED, np.array([1e300, 0]), r"the state\[0\] is 1e\+300"),
        (UNBOUNDED, [3e38, 0], r"\[0\] is 3e\+38; it must be finite, and from -1e\+18 to 1e\+18"),
        (UNBOUNDED, [10**30, 0], "an int of 100 bits is too large"),
        (spaces.Box(-3.4e38, 3.4e38, (2,), np.float32), [2e18, 0], r"\[0\] is 2e\+18"),
        (spaces.Box(-np.inf, np.inf, (), np.float64), 1e300, "the state is 1e"),
        (spaces.Box(-np.inf, np.inf, (2,), np.float16), [1e5, 0], r"\[0\] is 100000.0"),
        (HALF, [-0.1, np.nan], r"\[1\] is nan; it must be finite, and from -1e\+18 to 1e\+18"),
        (spaces.Box(0, 4, (2,), np.int32), [0, 2**40], "values that it cannot hold, such as 1099511627776"),
        (PICTURE, np.full((2, 3), np.nan), "such as nan"),
        (NESTED, {"pos": [1, np.inf, 3], "more": [0, 0.5]}, r"state pos\[1\] is inf"),
        (NESTED, {"pos": [1, 2, 3], "more": [0, np.nan]}, "state more.1 is nan"),
    ],
)
def test_value_that_would_do_damage_is_named(space: Any, state: Any, message: str) -> None:
    with pytest.raises(RlxValueError, match=message):
        StateReader(space).read(state)


@pytest.mark.parametrize(
    ("space", "state", "message"),
    [
        (HALF, [-0.1, 0], r"\[0\] is -0.1; it must be finite, and from -1e-05 to 1e\+18"),
        (HALF, [1e17, 5.1], r"\[1\] is 5.1"),
        (spaces.Box(0, 4, (2,), np.int32), [0, 5], r"\[1\] is 5; it must be from 0 to 4"),
    ],
)
def test_what_leaves_its_bounds_is_counted_or_refused(
    space: Any, state: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = StateReader(space)
    for _ in range(3):
        np.testing.assert_array_equal(reader.read(state)[0], np.asarray(state, space.dtype))
    assert reader.departures.count == 3
    (warning,) = caplog.messages
    assert re.search(f"{message}.*; such states are taken", warning)
    with pytest.raises(RlxValueError, match=message):
        StateReader(space, ValueLimits(keeps_bounds=True)).read(state)


@pytest.mark.parametrize(
    ("space", "state"),
    [
        (UNBOUNDED, [-1e18, 1e18]), (VECTOR, [9.00000095, -9.00000095, 0]), (HALF, [1e17, -5.00001]),
        (PICTURE, np.full((2, 3), 255)), (spaces.Box(-np.inf, np.inf, (2,), np.float16), [65504, -65504]),
    ],
)  # fmt: skip
def test_large_values_and_rounded_bounds_are_taken(space: Any, state: Any) -> None:
    StateReader(space).read(state)


def test_limit_is_what_it_is_set_to() -> None:
    reader = StateReader(UNBOUNDED, ValueLimits(observation=100.0))
    reader.read([100, -100])
    with pytest.raises(RlxValueError, match="to 100"):
        reader.read([101, 0])
    with pytest.raises(ValueError, match="largest reward is inf"):
        ValueLimits(reward=np.inf)


def test_space_without_arrays_is_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        StateReader(spaces.Text(5))


def test_frames_are_stacked_oldest_first_and_the_first_fills_the_stack() -> None:
    reader = StateReader(spaces.Box(0, 9, (2,), np.float32))
    stacker = FrameStacker(reader.spec.leaves[0], 3)
    stacks = [stacker.push(reader.read([i, i]), is_first=i in (1, 5))[0][:, 0].tolist() for i in range(1, 7)]
    assert stacks == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6]]
