"""Shapes and dtypes of observations and actions; conversion of nested observations to columns and back.

A nested observation is a list of *leaves* in a fixed order: dict keys sorted, tuple items in place. The data path
stores one column for each leaf; agents and models see the nested form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.tree import join, with_paths
from surreal.base.types import Obs

#: None for a leaf, {"dict": {key: structure}}, or {"tuple": [structure, ...]}.
Structure = None | Mapping[str, Any]

#: Largest array that a description from another process may declare, bytes.
MAX_ROW_BYTES = 256 << 20
_DTYPE = re.compile(r"\|[biu]1|<[iuf][248]")


@dataclass(frozen=True)
class ArraySpec:
    """One array: its dotted name ("" for a plain observation), shape and dtype without the batch axis."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype.str}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ArraySpec:
        """Decode a description, perhaps from another process; raises `ValueError` if it is not plain and sound."""
        name, dtype, sizes = str(data["name"]), str(data["dtype"]), data["shape"]
        if not _DTYPE.fullmatch(dtype):
            raise ValueError(f"dtype {dtype[:40]!r} of {name!r} is not a plain number type")
        if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError(f"shape {sizes} of {name!r} is not a list of sizes >= 0")
        spec = cls(name, tuple(sizes), np.dtype(dtype))
        if max(spec.nbytes, *sizes, 0) > MAX_ROW_BYTES:
            raise ValueError(f"shape {sizes} of {name!r} is larger than {MAX_ROW_BYTES} bytes")
        return spec


@dataclass(frozen=True)
class ObsSpec:
    """The leaves of an observation and their nesting."""

    leaves: tuple[ArraySpec, ...]
    structure: Structure = None

    @cached_property
    def is_array(self) -> bool:
        return self.structure is None

    @cached_property
    def row_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.leaves)

    def flatten(self, obs: Obs) -> list[NDArray[Any]]:
        """Split an observation or a batch into leaves, copied for other dtypes; raises `ValueError` if keys differ."""
        return [np.asarray(array, leaf.dtype) for array, leaf in zip(self.split(obs), self.leaves, strict=True)]

    def split(self, obs: Obs) -> list[Any]:
        """Split an observation into its unchanged leaves; raises as `flatten`."""
        if self.structure is None:
            return [obs]
        arrays: list[Any] = []
        _flatten(obs, self.structure, arrays, "")
        return arrays

    def count_rows(self, obs: Obs) -> int | None:
        """Count the observations of a batch, None for a single one; raises `ValueError` if a shape differs."""
        rows: int | None = None
        for number, (leaf, spec) in enumerate(zip(self.split(obs), self.leaves, strict=True)):
            shape = _shape_of(leaf)
            if number == 0 and shape is not None and len(shape) == len(spec.shape) + 1:
                rows = shape[0]
            if shape != (spec.shape if rows is None else (rows, *spec.shape)):
                name = f"observation {spec.name}".strip()
                found = f"is a {type(leaf).__name__}, not an array" if shape is None else f"has shape {list(shape)}"
                one, batch = list(spec.shape), ", ".join(["B" if rows is None else str(rows), *map(str, spec.shape)])
                raise ValueError(f"{name} {found}; it must be {one}, or [{batch}] in a batch")
        return rows

    def unflatten(self, arrays: Sequence[Any]) -> Obs:
        """Nest leaves (arrays or tensors, with or without batch axes) as in the space."""
        return arrays[0] if self.structure is None else _unflatten(self.structure, iter(arrays))

    def to_json(self) -> dict[str, Any]:
        return {"leaves": [leaf.to_json() for leaf in self.leaves], "structure": self.structure}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ObsSpec:
        """Decode a description, perhaps from another process; raises `ValueError` if its parts do not fit."""
        leaves = tuple(ArraySpec.from_json(leaf) for leaf in data["leaves"])
        structure = data["structure"]
        number = _count_leaves(structure)
        if number != len(leaves) or not leaves:
            raise ValueError(f"the structure names {number} leaves, but {len(leaves)} are described")
        return cls(leaves, structure)

    @classmethod
    def from_space(cls, space: gymnasium.Space[Any]) -> ObsSpec:
        """Describe a Box, Discrete, MultiDiscrete or MultiBinary, or Dict and Tuple of them; else `ValueError`."""
        tree = spaces_of(space)
        leaves = tuple(_leaf_of_space(path, leaf) for path, leaf in with_paths(tree))
        if not leaves:
            raise ValueError(f"observation space {space} is empty")
        return cls(leaves, _structure(tree))

    @classmethod
    def from_obs(cls, obs: Obs) -> ObsSpec:
        """Describe an observation without a batch axis; raises `ValueError` unless it is numbers and booleans."""
        leaves = tuple(_leaf_of_obs(path, leaf) for path, leaf in with_paths(obs))
        if not leaves:
            raise ValueError("an observation holds at least one array, got an empty one")
        return cls(leaves, _structure(obs))


def spaces_of(space: gymnasium.Space[Any]) -> Obs:
    """Return the tree of the spaces in `Dict` and `Tuple` spaces."""
    if isinstance(space, spaces.Dict):
        return {key: spaces_of(child) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(spaces_of(child) for child in space.spaces)
    return space


def action_spec(space: gymnasium.Space[Any]) -> ArraySpec:
    """Describe the actions of a Discrete, MultiDiscrete, MultiBinary or Box space."""
    if isinstance(space, spaces.Discrete):
        return ArraySpec("action", (), np.dtype(np.int64))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box) and space.shape is not None:
        return ArraySpec("action", tuple(space.shape), np.dtype(space.dtype))
    raise ValueError(f"action space {space} is not supported; use Discrete, MultiDiscrete, MultiBinary or Box")


def _flatten(obs: Obs, structure: Structure, arrays: list[Any], path: str) -> None:
    if structure is None:
        arrays.append(obs)
    elif "dict" in structure:
        children = structure["dict"]
        if not isinstance(obs, Mapping) or obs.keys() != children.keys():
            got = sorted(obs) if isinstance(obs, Mapping) else type(obs).__name__
            raise ValueError(f"observation {path or 'root'} must be a dict with keys {list(children)}, got {got}")
        for key, child in children.items():
            _flatten(obs[key], child, arrays, join(path, key))
    else:
        items = structure["tuple"]
        if not isinstance(obs, tuple | list) or len(obs) != len(items):
            raise ValueError(f"observation {path or 'root'} must be a tuple of {len(items)} items")
        for index, (item, child) in enumerate(zip(obs, items, strict=True)):
            _flatten(item, child, arrays, join(path, index))


def _shape_of(leaf: Any) -> tuple[int, ...] | None:
    """The shape of an array, or of numbers in lists; None for anything else."""
    if hasattr(leaf, "shape"):
        return tuple(leaf.shape)
    try:
        array = np.asarray(leaf)
    except ValueError:  # lists of unequal lengths
        return None
    return array.shape if array.dtype.kind in "biuf" else None


def _unflatten(structure: Structure, arrays: Any) -> Obs:
    if structure is None:
        return next(arrays)
    if "dict" in structure:
        return {key: _unflatten(child, arrays) for key, child in structure["dict"].items()}
    return tuple(_unflatten(child, arrays) for child in structure["tuple"])


def _count_leaves(structure: Structure) -> int:
    if structure is None:
        return 1
    if isinstance(structure, Mapping) and len(structure) == 1:
        children = structure.get("dict")
        if isinstance(children, Mapping):
            return sum(_count_leaves(child) for child in children.values())
        items = structure.get("tuple")
        if isinstance(items, list):
            return sum(_count_leaves(child) for child in items)
    raise ValueError("a structure is null, one dict of structures, or one tuple of them")


def _structure(tree: Obs) -> Structure:
    if isinstance(tree, Mapping):
        return {"dict": {key: _structure(tree[key]) for key in sorted(tree)}}
    if isinstance(tree, tuple):
        return {"tuple": [_structure(child) for child in tree]}
    return None


def _leaf_of_space(path: str, space: Any) -> ArraySpec:
    if isinstance(space, spaces.Discrete):
        return ArraySpec(path, (), np.dtype(np.int64))
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) and space.shape is not None:
        return ArraySpec(path, tuple(space.shape), np.dtype(space.dtype))
    raise ValueError(f"observation space {space} is not supported; use Box, Discrete, Multi*, Dict or Tuple")


def _leaf_of_obs(path: str, leaf: Any) -> ArraySpec:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"observation {path or 'root'} has dtype {array.dtype}; use numbers or booleans")
    return ArraySpec(path, array.shape, array.dtype)
