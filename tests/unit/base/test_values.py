"""Which numbers may enter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from surreal.base.values import LARGEST, are_within, describe_unsound, is_sound, unsound_rows

BAD = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2 * LARGEST]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bad", BAD)
def test_one_bad_number_among_many_is_found(dtype: str, bad: float) -> None:
    array = np.ones((50, 3), dtype)
    assert is_sound(array)
    array[17, 2] = bad
    assert not is_sound(array)
    assert np.flatnonzero(unsound_rows(array)).tolist() == [17]


@pytest.mark.parametrize(
    "array",
    [
        np.array([5e-324, -5e-324, 0.0]),
        np.array([1e-45, LARGEST], np.float32),
        np.full(10**5, 0.9 * LARGEST),  # the sum of the squares is beyond the bound, each of them is not
        np.array([2**63 - 1, -(2**63)]),
        np.array([True, False]),
        np.array([60000.0, -60000.0], np.float16),
        np.zeros((0, 3)),
        np.array(7.0),
    ],
)
def test_subnormal_large_and_whole_numbers_are_sound(array: np.ndarray) -> None:
    assert is_sound(array)


@pytest.mark.parametrize("value", [10**400, "one", None, [10**400, 1.0], 1j])
def test_what_is_no_number_is_not_sound(value: Any) -> None:
    array = np.asarray(value)
    assert not is_sound(array)
    assert unsound_rows(np.atleast_1d(array)).all()
    text = describe_unsound({"reward": array})
    assert text.startswith("reward is ")
    assert len(text) < 150


def test_infinite_half_precision_is_found() -> None:
    assert not is_sound(np.array([1.0, np.inf], np.float16))


def test_columns_are_sound_though_their_memory_is_not_contiguous() -> None:
    array = np.ones((4, 6), np.float32)
    array[:, 1::2] = np.nan
    assert is_sound(array[:, ::2])
    assert not is_sound(array[::2, 1:2])


@given(hnp.arrays(st.sampled_from(["f2", "f4", "f8"]), hnp.array_shapes(max_dims=2, max_side=5)))
def test_rows_and_arrays_agree(array: Any) -> None:
    naive = [all(abs(float(x)) <= LARGEST for x in np.ravel(row)) for row in array]
    assert (~unsound_rows(array)).tolist() == naive
    assert is_sound(array) == all(naive)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
def test_a_range_holds_its_ends_and_nothing_beyond(dtype: str) -> None:
    array = np.array([[3, 7], [5, 4]], dtype)
    assert are_within(array, 3, 7)
    assert not are_within(array, 4, 7)
    assert not are_within(array, 3, 6)


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("place", [0, -1])
def test_nan_is_in_no_range(size: int, place: int) -> None:
    array = np.zeros(size)
    array[place] = np.nan
    assert not are_within(array, -np.inf, np.inf)


def test_the_first_bad_number_is_named() -> None:
    arrays = {"reward": np.zeros(3), "observation pose": np.array([[0.0, np.nan]]), "value": np.array([np.inf])}
    assert describe_unsound(arrays).startswith("observation pose is nan")
    assert describe_unsound({"reward": np.zeros(3)}) == ""
