"""Observations as columns and back."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.specs import ArraySpec, ObsSpec, action_spec
from tests.examples import examples

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]

arrays = st.builds(
    lambda dtype, shape, value: np.full(shape, value, dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 1),
)
observations = st.recursive(
    arrays,
    lambda inner: (
        st.dictionaries(st.text(max_size=5), inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def assert_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@examples(100)
@given(observations)
def test_an_observation_survives_flatten_and_json(obs: Any) -> None:
    spec = ObsSpec.from_json(json.loads(json.dumps(ObsSpec.from_obs(obs).to_json())))
    leaves = spec.flatten(obs)
    assert [(leaf.shape, leaf.dtype) for leaf in leaves] == [(leaf.shape, leaf.dtype) for leaf in spec.leaves]
    assert spec.row_bytes == sum(leaf.nbytes for leaf in leaves)
    assert_same(spec.unflatten(leaves), obs)


def test_a_space_and_its_samples_have_the_same_spec() -> None:
    space = spaces.Dict(
        {
            "z": spaces.Box(0, 255, (4, 4), np.uint8),
            "a": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            "m": spaces.Dict({"x": spaces.Box(-1, 1, (), np.float64)}),
        }
    )
    spec = ObsSpec.from_space(space)
    assert [leaf.name for leaf in spec.leaves] == ["a.0", "a.1", "a.2", "m.x", "z"]
    assert spec == ObsSpec.from_obs(space.sample())
    assert not spec.is_array


def test_a_plain_array_has_one_leaf_without_a_name() -> None:
    spec = ObsSpec.from_space(spaces.Box(-1, 1, (3,), np.float32))
    assert spec.is_array
    assert spec.leaves == (ArraySpec("", (3,), np.dtype(np.float32)),)
    batch = np.zeros((5, 3), np.float32)
    assert spec.flatten(batch)[0] is batch
    assert spec.unflatten([batch]) is batch


def test_dict_keys_may_come_in_any_order() -> None:
    spec = ObsSpec.from_obs({"b": np.int64(2), "a": np.int64(1)})
    assert [int(leaf) for leaf in spec.flatten({"a": 1, "b": 2})] == [1, 2]
    assert list(spec.unflatten([1, 2])) == ["a", "b"]


@pytest.mark.parametrize(
    "obs", [{"a": 1}, {"a": 1, "b": (2, 3), "c": 4}, {"a": 1, "b": (2,)}, {"a": 1, "b": 2}, [1, 2], 1]
)
def test_an_observation_of_another_structure_is_refused(obs: Any) -> None:
    spec = ObsSpec.from_obs({"a": np.float32(0), "b": (np.float32(0), np.float32(0))})
    with pytest.raises(ValueError, match="observation"):
        spec.flatten(obs)


@pytest.mark.parametrize("obs", ["text", {"a": None}, np.array([object()]), np.zeros(2, "i4,f4"), {}, (), {"a": {}}])
def test_what_is_not_numbers_cannot_be_described(obs: Any) -> None:
    with pytest.raises(ValueError, match="observation"):
        ObsSpec.from_obs(obs)


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.Dict({"t": spaces.Text(3)}), spaces.Dict({})]
)
def test_spaces_without_a_fixed_shape_are_refused(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(ValueError, match="observation"):
        ObsSpec.from_space(space)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Discrete(4), (), np.int64),
        (spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (spaces.MultiBinary(5), (5,), np.int8),
        (spaces.Box(-1, 1, (2, 2), np.float32), (2, 2), np.float32),
    ],
)
def test_action_spec_describes_a_sample(space: gymnasium.Space[Any], shape: tuple[int, ...], dtype: Any) -> None:
    spec = action_spec(space)
    sample = np.asarray(space.sample())
    assert (spec.shape, spec.dtype) == (shape, np.dtype(dtype)) == (sample.shape, sample.dtype)


def test_dict_actions_are_not_supported_here() -> None:
    with pytest.raises(ValueError, match="not supported"):
        action_spec(spaces.Dict({"a": spaces.Discrete(2)}))


@pytest.mark.parametrize(
    "data",
    [
        {"name": "x", "shape": [2], "dtype": "O"},
        {"name": "x", "shape": [2], "dtype": "i4,f4"},
        {"name": "x", "shape": [2], "dtype": "<U1000000"},
        {"name": "x", "shape": [2], "dtype": "|V1000000"},
        {"name": "x", "shape": [2], "dtype": "<M8[s]"},
        {"name": "x", "shape": [2], "dtype": "nonsense"},
        {"name": "x", "shape": [-1], "dtype": "<f4"},
        {"name": "x", "shape": [1 << 40, 1 << 40], "dtype": "<f4"},
        {"name": "x", "shape": 3, "dtype": "<f4"},
        {"name": "x", "shape": [float("inf")], "dtype": "<f4"},
        {"name": "x", "shape": [1.5], "dtype": "<f4"},
    ],
)
def test_a_hostile_description_of_an_array_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dtype|shape"):
        ArraySpec.from_json(data)


@pytest.mark.parametrize(
    "structure", [{"dict": {"a": None}}, {"tuple": [None, None, None]}, None, "x", {"dict": [1]}, {}, 7]
)
def test_a_structure_that_does_not_fit_its_leaves_is_refused(structure: Any) -> None:
    spec = ObsSpec.from_obs((np.float32(0), np.float32(0)))
    with pytest.raises(ValueError, match="structure"):
        ObsSpec.from_json(spec.to_json() | {"structure": structure})


@pytest.mark.parametrize(
    ("obs", "rows"), [(np.zeros(4), None), ([0.0] * 4, None), (np.zeros((3, 4)), 3), (np.zeros((0, 4)), 0)]
)
def test_rows_of_a_batch_are_counted(obs: Any, rows: int | None) -> None:
    assert ObsSpec.from_obs(np.zeros(4)).count_rows(obs) == rows


def test_another_shape_is_refused_with_both() -> None:
    spec = ObsSpec.from_obs(np.zeros(4))
    for wrong in (np.zeros(3), np.zeros((2, 3)), np.zeros((1, 2, 4)), 1.0):
        with pytest.raises(
            ValueError, match=r"observation has shape \[.*\]; it must be \[4\], or \[.*, 4\] in a batch"
        ):
            spec.count_rows(wrong)
    for other, kind in ((None, "NoneType"), ({"a": 1}, "dict"), ((np.zeros(4), {}), "tuple"), ("left", "str")):
        with pytest.raises(ValueError, match=rf"observation is a {kind}, not an array; it must be \[4\]"):
            spec.count_rows(other)
    nested = ObsSpec.from_obs({"a": np.zeros(4), "b": np.zeros(2)})
    with pytest.raises(ValueError, match=r"observation b has shape \[2\]; it must be \[2\], or \[5, 2\] in a batch"):
        nested.count_rows({"a": np.zeros((5, 4)), "b": np.zeros(2)})
