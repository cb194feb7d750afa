"""The file in which a replay's priorities outlive its process: written every few seconds, read at a start.

The transitions themselves are in Redis. A chunk has a name that never comes again, so a file that is older than the
stream, or of another run, does no harm: what it does not know gets the maximum, and what is gone is passed over.

File: a checkpoint (`surreal.base.checkpoint`) with the tensor `leaves` [transitions] float64, chunk after chunk, and in
its metadata `kind`, `priority_exponent`, `max_leaf`, `chunk_ids` and `chunk_steps`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.base.checkpoint import load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError
from surreal.replay.store.sum_tree import MAX_VALUE

_KIND = "priorities"


@dataclass
class SavedPriorities:
    """Leaves of a sum tree, by chunk."""

    exponent: float  #: alpha: a leaf is p^alpha
    max_leaf: float  #: what a new transition gets
    chunks: dict[str, NDArray[np.float64]]  #: chunk id -> leaves of its transitions, in order


def write_priorities(path: str | os.PathLike[str], saved: SavedPriorities) -> None:
    """Write the file, whole or not at all.

    Raises:
        CheckpointError: it could not be written; an older file remains.
    """
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
    """Read the file.

    Raises:
        CheckpointError: it is missing, damaged, no such file, or of another exponent.
    """
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
