"""Chunk: what a reader sees of a decoded chunk, all columns at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.experience.format.data_contract import Contract

T = TypeVar("T", bound=np.generic)


@dataclass
class Chunk:
    """A decoded chunk: views on the bytes that came, nothing copied (but for compressed observations).

    Attributes:
        segments: [S, 5] int32, see `codec`.
        columns: one array [n_steps, ...] for each column of the table but the extras.
        extras: the agent's columns, [n_steps, ...].
        leaves: one array [n_rows, *leaf_shape] for each leaf of the observation; none if the block was left in Redis.
        own_steps: how many of the steps belong to this chunk (the others are lookahead).
        shard: number of the shard it came from.
    """

    segments: NDArray[np.int32]
    columns: dict[str, NDArray[Any]]
    extras: dict[str, NDArray[Any]]
    leaves: list[NDArray[Any]]
    own_steps: int
    entry_id: bytes = b""
    chunk_id: str = ""
    shard: int = 0
    epoch: str = ""
    stored_bytes: int = 0
    contract: Contract | None = field(default=None, repr=False)

    @cached_property
    def num_rows(self) -> int:
        """Observation rows, also where they were left in Redis."""
        return int(self.segments[:, 0].sum())

    @cached_property
    def obs_row(self) -> NDArray[np.int64]:
        """[n_steps] observation row of each step; the next observation is one row further."""
        history = self.segments[:, 4].astype(np.int64)
        return np.arange(len(self.columns["reward"])) + self._per_step(np.cumsum(history + 1) - 1)

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """[n_steps] rows of the same segment that stand before each step's row."""
        return self.within + self._per_step(self.segments[:, 4])

    @cached_property
    def own(self) -> NDArray[np.int64]:
        """[own_steps] positions of the steps that belong to this chunk."""
        if self.own_steps == len(self.columns["reward"]):
            return np.arange(self.own_steps)
        return np.flatnonzero(self.within < self._per_step(self.segments[:, 1]))

    @cached_property
    def within(self) -> NDArray[np.int64]:
        """[n_steps] number of each step in its segment."""
        steps = self._steps
        return np.arange(len(self.columns["reward"])) - self._per_step(np.cumsum(steps) - steps)

    @cached_property
    def env_slot(self) -> NDArray[np.int32]:
        """[n_steps] which environment of the sender."""
        return self._per_step(self.segments[:, 2])

    @cached_property
    def step(self) -> NDArray[np.int64]:
        """[n_steps] number of each step in its episode."""
        return self.within + self._per_step(self.segments[:, 3])

    @cached_property
    def terminated(self) -> NDArray[np.bool_]:
        """[n_steps] whether the step ended its episode in a terminal state."""
        return (self.columns["flags"] & 1).view(np.bool_)

    @cached_property
    def truncated(self) -> NDArray[np.bool_]:
        """[n_steps] whether the episode was cut after the step."""
        return (self.columns["flags"] >> 1).view(np.bool_)

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        return self.segments[:, 0].astype(np.int64) - 1 - self.segments[:, 4]

    def _per_step(self, values: NDArray[T]) -> NDArray[T]:
        return np.repeat(values, self._steps)
