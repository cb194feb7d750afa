"""Nested observations as trees."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from surreal.base.specs import ObsSpec
from surreal.base.tree import first_leaf, leaves, map_leaves, take, with_paths

#: Keys out of order, a mapping that is no dict, tuples in tuples.
NESTED = {
    "pose": (np.arange(6).reshape(2, 3), (np.array([7, 8]),)),
    "image": MappingProxyType({"right": np.array([3.0, 4.0]), "left": np.array([1.0, 2.0])}),
}
PATHS = ["image.left", "image.right", "pose.0", "pose.1.0"]


def test_leaves_stand_in_the_order_of_the_spec() -> None:
    spec = ObsSpec.from_obs(NESTED)
    assert [leaf.name for leaf in spec.leaves] == PATHS
    for found, expected in zip(leaves(NESTED), spec.flatten(NESTED), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [path for path, _ in with_paths(NESTED)] == PATHS
    assert all(found is leaf for (_, found), leaf in zip(with_paths(NESTED), leaves(NESTED), strict=True))
    assert first_leaf(NESTED) is NESTED["image"]["left"]


def test_a_plain_leaf_is_a_tree() -> None:
    for leaf in (np.zeros(3), torch.zeros(3), [1.0, 2.0], 5):
        (only,), ((path, same),) = leaves(leaf), with_paths(leaf)
        assert only is leaf and same is leaf and path == ""
        assert first_leaf(leaf) is leaf
        assert map_leaves(lambda found: found, leaf) is leaf


def test_mapping_keeps_the_nesting_and_the_order_of_keys() -> None:
    doubled = map_leaves(lambda leaf: leaf * 2, NESTED)
    assert list(doubled) == ["pose", "image"]
    assert type(doubled["pose"]) is tuple and type(doubled["image"]) is dict
    for found, leaf in zip(leaves(doubled), leaves(NESTED), strict=True):
        np.testing.assert_array_equal(found, leaf * 2)


def test_a_list_is_a_leaf_and_is_handed_over_whole() -> None:
    assert map_leaves(np.asarray, {"x": [1, 2]})["x"].shape == (2,)


def test_rows_are_taken_of_every_leaf() -> None:
    whole: Any = {"x": np.arange(8).reshape(4, 2), "y": (torch.arange(4),)}
    part = take(whole, slice(1, 3))
    np.testing.assert_array_equal(part["x"], [[2, 3], [4, 5]])
    assert part["y"][0].tolist() == [1, 2]
    assert take(whole, 3)["y"][0].item() == 3
    np.testing.assert_array_equal(take(np.arange(4), np.array([True, False, True, False])), [0, 2])


def test_empty_nesting_has_no_leaves() -> None:
    assert leaves({"x": (), "y": {}}) == []
    assert map_leaves(lambda leaf: leaf, {"x": (), "y": {}}) == {"x": (), "y": {}}
