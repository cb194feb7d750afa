"""Priorities of transitions: the sum tree that draws by them, and the file in which they outlive their process.

`SumTree` draws leaves in proportion to their values (Schaul et al. 2016 appendix B.2.1, arXiv:1511.05952). Each call
works on a whole batch in NumPy, one pass a level, so what counts is the number of levels: a node has 16 children, and
the levels end where one cumulative sum is cheaper than another level. Sums are always computed again from the children
and never corrected by differences, so no rounding error can build up.

The file is a checkpoint (`surreal.base.checkpoint`) with the tensor `leaves` [transitions] float64, chunk after chunk.
Its metadata has `kind`, `priority_exponent`, `max_leaf`, `chunk_ids` and `chunk_steps`. The transitions themselves are
in Redis. A chunk id is never used twice, so a file that is older than the stream, or belongs to another run, does no
harm: transitions that it does not know get the largest priority, and chunks that are gone are ignored.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.base.checkpoint import load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError
from surreal.base.ranges import PositiveInt, checked

_SHIFT = 4
_FAN_OUT = 1 << _SHIFT
#: Nodes of the top level at most: it is searched through one cumulative sum.
_TOP_SIZE = 8192
#: Largest value of a leaf: sums of 10^9 of these are finite.
MAX_VALUE = 1e290

#: `children @ _PREFIX` gives [0, c0, c0 + c1, ...]: for blocks this small a product is faster than `cumsum`, by far.
_PREFIX = np.concatenate([np.zeros((_FAN_OUT, 1)), np.triu(np.ones((_FAN_OUT, _FAN_OUT)))], axis=1)
_ONES = np.ones(_FAN_OUT)


class SumTree:
    """Float64 values >= 0 of any fixed number of leaves, all zero at first. One thread at a time uses it."""

    @checked
    def __init__(self, capacity: PositiveInt) -> None:
        self.capacity = capacity
        self._levels: list[NDArray[np.float64]] = []  # from the leaves to the top; blocks [n, 16], but for the top
        size = capacity
        while size > _TOP_SIZE:
            blocks = -(-size // _FAN_OUT)
            self._levels.append(np.zeros((blocks, _FAN_OUT)))
            size = blocks
        self._levels.append(np.zeros(size))
        self._leaves = self._levels[0].reshape(-1)
        self._cumulative: NDArray[np.float64] | None = None  # of the top; None when it has changed

    @property
    def total(self) -> float:
        return float(self._top_sums()[-1])

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self._levels)

    @property
    def leaves(self) -> NDArray[np.float64]:
        """A copy of all leaves, [capacity]."""
        return self._leaves[: self.capacity].copy()

    def set(self, indices: NDArray[np.int64], values: NDArray[np.float64] | float) -> None:
        """Change leaves (`indices` [n] int64, values [n] or one for all, 0 .. `MAX_VALUE`), and the sums above them;
        the last value of an index stays. Raises `ValueError` out of range.
        """
        if not len(indices):
            return
        if indices.view(np.uint64).max() >= self.capacity:  # as unsigned numbers, negative ones are huge
            raise ValueError(f"a leaf's index is outside of 0 .. {self.capacity - 1}")
        low, high = (values, values) if isinstance(values, float | int) else (values.min(), values.max())
        if not (low >= 0.0 and high <= MAX_VALUE):  # so that NaN is refused
            raise ValueError(f"a leaf cannot be {high if low >= 0.0 else low}; it must be 0 .. {MAX_VALUE:g}")
        self._leaves[indices] = values
        nodes = indices
        for children, parents in zip(self._levels, self._levels[1:], strict=False):
            sums = parents.reshape(-1)
            if len(nodes) >= len(children):
                sums[: len(children)] = children @ _ONES
                nodes = np.arange(len(children))
            else:
                nodes = nodes >> _SHIFT
                sums[nodes] = children.take(nodes, axis=0) @ _ONES
        self._cumulative = None

    def sample(self, number: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw leaves, stratified: one from each of `number` equal parts of the total (section 3.3 of the paper).
        Return `(indices, values)`, [number] each, by rising index; no value is zero. Raises `ValueError` if all are.
        """
        return self.find((rng.random(number) + np.arange(number)) * (self.total / number))

    def find(self, prefix_sums: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the leaf that each prefix sum [n], 0 .. total, falls into: the first whose sum with all leaves before it
        is larger; what rounding lifts to the total counts as just below it.

        Return `(indices, values)`, [n] each; no value is zero. Raises `ValueError` if all are.
        """
        if not self.total > 0.0:
            raise ValueError("all leaves are zero, so none can be sampled")
        indices, values = self._descend(prefix_sums, is_exact=False)
        if len(values) and not values.min() > 0.0:
            # A product may add up neighboring prefixes in different orders, and so make a gap where a leaf is zero.
            indices, values = self._descend(prefix_sums, is_exact=True)
        return indices, values

    def _descend(
        self, prefix_sums: NDArray[np.float64], *, is_exact: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Descend from the top; `is_exact` adds in order, so a child that is zero has the prefix of the one before."""
        sums, top = self._top_sums(), self._levels[-1]
        rest = np.minimum(prefix_sums, np.nextafter(sums[-1], 0.0))
        np.maximum(rest, 0.0, out=rest)
        nodes = sums.searchsorted(rest, side="right")
        values = top.take(nodes)
        rest -= sums.take(nodes) - values
        begins = np.arange(0, len(rest) * (_FAN_OUT + 1), _FAN_OUT + 1)
        for children in self._levels[-2::-1]:
            block = children.take(nodes, axis=0)
            if is_exact:
                prefix = np.zeros((len(block), _FAN_OUT + 1))
                block.cumsum(axis=1, out=prefix[:, 1:])
            else:
                prefix = block @ _PREFIX
            # Rounding may have left a little too much, or too little, for this node.
            np.maximum(rest, 0.0, out=rest)
            np.minimum(rest, np.nextafter(prefix[:, -1], 0.0), out=rest)
            child = (prefix[:, 1:] > rest[:, None]).argmax(axis=1)
            rest -= prefix.reshape(-1).take(begins + child)
            nodes = (nodes << _SHIFT) + child
            values = children.reshape(-1).take(nodes)
        return nodes, values

    def _top_sums(self) -> NDArray[np.float64]:
        if self._cumulative is None:
            self._cumulative = self._levels[-1].cumsum()
        return self._cumulative


_KIND = "priorities"


@dataclass
class SavedPriorities:
    """Leaves of a sum tree, by chunk."""

    exponent: float  #: alpha: a leaf is p^alpha
    max_leaf: float  #: what a new transition gets
    chunks: dict[str, NDArray[np.float64]]  #: chunk id -> leaves of its transitions, in order


def write_priorities(path: str | os.PathLike[str], saved: SavedPriorities) -> None:
    """Write the file, whole or not at all; raises `CheckpointError`, and an older file remains."""
    leaves = np.concatenate([np.empty(0), *saved.chunks.values()])
    metadata = {
        "kind": _KIND,
        "priority_exponent": saved.exponent,
        "max_leaf": saved.max_leaf,
        "chunk_ids": list(saved.chunks),
        "chunk_steps": [len(values) for values in saved.chunks.values()],
    }
    save_checkpoint(path, {"leaves": torch.from_numpy(leaves)}, metadata, step=0)


def read_priorities(path: str | os.PathLike[str], *, exponent: float) -> SavedPriorities:
    """Read the file; raises `CheckpointError` if it is missing or damaged, or has another exponent."""
    found = load_checkpoint(path)
    metadata = found.metadata
    if metadata.get("kind") != _KIND or set(found.tensors) != {"leaves"}:
        raise CheckpointError(f"{found.path} holds no priorities")
    leaves = found.tensors["leaves"].numpy()
    try:
        max_leaf, stored = float(metadata["max_leaf"]), float(metadata["priority_exponent"])
        chunk_ids = [str(chunk_id) for chunk_id in metadata["chunk_ids"]]
        ends = np.cumsum([int(steps) for steps in metadata["chunk_steps"]], dtype=np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{found.path} is damaged: its metadata cannot be read") from error
    if stored != exponent:
        raise CheckpointError(f"{found.path} has priority_exponent {stored:g}; the replay's is {exponent:g}")
    fits = leaves.dtype == np.float64 and leaves.ndim == 1 and len(chunk_ids) == len(ends)
    fits = fits and len(leaves) == (ends[-1] if len(ends) else 0) and bool((np.diff(ends, prepend=0) >= 0).all())
    if not fits or not ((leaves > 0.0) & (leaves <= MAX_VALUE)).all() or not 0.0 < max_leaf <= MAX_VALUE:
        raise CheckpointError(f"{found.path} is damaged: its priorities do not add up")
    parts = [leaves[end - steps : end] for end, steps in zip(ends, np.diff(ends, prepend=0), strict=True)]
    return SavedPriorities(exponent, max_leaf, dict(zip(chunk_ids, parts, strict=True)))
