"""Mirrored experience: preallocated rings of observation rows and of transitions.

Rows and transitions are named by sequence numbers that only grow; their place is the number modulo the ring's size.
Chunks come and go in order, so both rings are filled at the head and freed at the tail, and a ring that is too small
for what is alive grows. One thread owns a store; nothing here locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.codec import Chunk, Contract
from surreal.replay.nstep import n_step
from surreal.types import SampleInfo


class Ring:
    """Columns of equal length, addressed by sequence number.

    Args:
        shapes: name -> (shape of a row, dtype).
        size: rows allocated at first, >= 1.
    """

    def __init__(self, shapes: Mapping[str, tuple[tuple[int, ...], Any]], size: int) -> None:
        self.size = max(size, 1)
        self.head = 0  # next sequence number
        self.tail = 0  # oldest living one
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty((self.size, *shape), dtype) for name, (shape, dtype) in shapes.items()
        }

    def __len__(self) -> int:
        return self.head - self.tail

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(column.nbytes for column in self.columns.values())

    def append(self, rows: Mapping[str, NDArray[Any]], count: int) -> int:
        """Copy rows in; returns the first one's sequence number."""
        if len(self) + count > self.size:
            self._grow(len(self) + count)
        first, begin = self.head, self.head % self.size
        split = min(count, self.size - begin)
        for name, column in self.columns.items():
            values = rows[name]
            column[begin : begin + split] = values[:split]
            if split < count:
                column[: count - split] = values[split:]
        self.head += count
        return first

    def free_until(self, sequence: int) -> None:
        """Forget everything before this sequence number."""
        self.tail = sequence

    def take(self, name: str, sequences: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows with these sequence numbers."""
        return self.columns[name].take(sequences % self.size, axis=0)

    def _grow(self, needed: int) -> None:
        size = needed + needed // 4
        living = np.arange(self.tail, self.head)
        old_places, new_places = living % self.size, living % size
        for name, column in self.columns.items():
            grown = np.empty((size, *column.shape[1:]), column.dtype)
            grown[new_places] = column[old_places]
            self.columns[name] = grown
        self.size = size


class Rows(NamedTuple):
    """Transitions as NumPy columns, [B, ...] each, before they become tensors."""

    obs: list[NDArray[Any]]  #: one array a leaf
    next_obs: list[NDArray[Any]]
    action: NDArray[Any]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    version: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]
    sample_info: SampleInfo


class StoredChunk(NamedTuple):
    """What is remembered of a chunk that was inserted."""

    entry_id: bytes
    chunk_id: str
    epoch: str
    steps: int
    stored_bytes: int
    end: int  #: sequence number behind its last transition
    row_end: int  #: sequence number behind its last observation row


class TransitionStore:
    """n-step transitions over mirrored observation rows.

    Args:
        contract: what the stream holds.
        capacity: transitions expected to be alive, a first size; more make the rings grow.
        n_step: steps of a transition, 1 .. contract.lookahead + 1.
        gamma: discount factor of one step.
    """

    def __init__(self, contract: Contract, *, capacity: int, n_step: int, gamma: float) -> None:
        self.contract = contract
        self.n_step = n_step
        self.gamma = gamma
        slack = capacity // 8 + 1024
        self.rows = Ring(
            {str(i): (leaf.shape, leaf.dtype) for i, leaf in enumerate(contract.obs.leaves)}, capacity + slack
        )
        extras = {f"extra.{extra.name}": (extra.shape, extra.dtype) for extra in contract.extras}
        if contract.stack > 1:
            extras |= {"depth": ((), np.dtype(np.int64)), "next_depth": ((), np.dtype(np.int64))}
        self.transitions = Ring(
            {
                "row": ((), np.int64),
                "next_row": ((), np.int64),
                "action": (contract.action.shape, contract.action.dtype),
                "reward": ((), np.float32),
                "discount": ((), np.float32),
                "version": ((), np.int64),
                **extras,
            },
            capacity + slack,
        )

    def __len__(self) -> int:
        return len(self.transitions)

    def insert(self, chunk: Chunk) -> range:
        """Copy a chunk's rows in, and derive the transitions of the steps it owns.

        Returns:
            Sequence numbers of the new transitions.
        """
        first_row = self.rows.append({str(i): leaf for i, leaf in enumerate(chunk.leaves)}, chunk.num_rows)
        own, columns = chunk.own, chunk.columns
        returns = n_step(chunk.obs_row, columns["reward"], chunk.terminated, own, n=self.n_step, gamma=self.gamma)
        row = chunk.obs_row[own] + first_row
        values: dict[str, NDArray[Any]] = {
            "row": row,
            "next_row": row + returns.horizon,
            "action": columns["action"][own],
            "reward": returns.reward,
            "discount": returns.discount,
            "version": columns["version"][own],
        }
        values |= {f"extra.{name}": column[own] for name, column in chunk.extras.items()}
        if self.contract.stack > 1:
            depth = chunk.depth[own]
            values |= {"depth": depth, "next_depth": depth + returns.horizon}
        first = self.transitions.append(values, len(own))
        return range(first, first + len(own))

    def evict(self, chunk: StoredChunk) -> None:
        """Free the oldest chunk's rows and transitions."""
        self.transitions.free_until(chunk.end)
        self.rows.free_until(chunk.row_end)

    def gather(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Rows:
        """Copy the transitions with these sequence numbers, drawn with these probabilities."""
        take = self.transitions.take
        row, next_row = take("row", indices), take("next_row", indices)
        if self.contract.stack > 1:
            row, next_row = self._stack(row, take("depth", indices)), self._stack(next_row, take("next_depth", indices))
        names: Sequence[str] = [str(i) for i in range(len(self.contract.obs.leaves))]
        version = take("version", indices)
        return Rows(
            obs=[self.rows.take(name, row) for name in names],
            next_obs=[self.rows.take(name, next_row) for name in names],
            action=take("action", indices),
            reward=take("reward", indices),
            discount=take("discount", indices),
            version=version,
            extras={extra.name: take(f"extra.{extra.name}", indices) for extra in self.contract.extras},
            sample_info=SampleInfo(indices % self.transitions.size, indices, probability, version),
        )

    def _stack(self, row: NDArray[np.int64], depth: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B, stack] rows of the frames of these observations, oldest first; the episode's first frame is repeated."""
        back = np.arange(self.contract.stack - 1, -1, -1)
        return row[:, None] - np.minimum(back, depth[:, None])
