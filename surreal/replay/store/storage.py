"""The index of a replay: a preallocated ring of n-step transitions over observation rows, which are here or in Redis.

Observation rows and transitions have sequence numbers that only grow; a transition's slot is its number modulo the
ring's size. Chunks come and go in order, so rings are filled at the head and freed at the tail, and a ring that is too
small for what is alive grows. One thread owns a store; nothing here locks.

For step j of a segment, with rewards r_j, r_{j+1}, ... and h = min(n, steps left in the segment from j on):

    reward_j   = r_j + gamma r_{j+1} + ... + gamma^{h-1} r_{j+h-1}
    discount_j = gamma^h * (1 - terminated_{j+h-1})
    next row_j = obs_row_j + h

so target_j = reward_j + discount_j * V(next row_j). A segment ends where its episode ends or was cut; elsewhere its
lookahead makes h = n. Sutton 1988.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import SampleInfo
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.data_contract import NEXT_MASK_COLUMN
from surreal.replay.store.rows import MirroredRows, Observations, Ring, Wanted, rows_expected


class NStep(NamedTuple):
    """One entry for each requested step."""

    reward: NDArray[np.float32]  #: [M]
    discount: NDArray[np.float32]  #: [M]
    horizon: NDArray[np.int64]  #: [M] h, the number of steps summed


def n_step(
    obs_row: NDArray[np.int64],
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    steps: NDArray[np.int64],
    *,
    n: int,
    gamma: float,
) -> NStep:
    """Compute n-step rewards and discounts.

    Args:
        obs_row: [S] observation row of every step of a chunk, lookahead included; a gap begins a new segment.
        reward: [S] reward of every step.
        terminated: [S] whether the step ended its episode in a terminal state.
        steps: [M] positions of the steps to compute, those the chunk owns.
        n: steps to sum, >= 1.
        gamma: discount factor of one step, 0..1.
    """
    if n == 1:
        ones = np.ones(len(steps), np.int64)
        discount = np.float32(gamma) * (1 - terminated[steps].astype(np.float32))
        return NStep(reward[steps], discount.astype(np.float32), ones)
    is_end = np.ones(len(obs_row), np.bool_)
    is_end[:-1] = np.diff(obs_row) != 1
    ends = np.flatnonzero(is_end)
    horizon = np.minimum(n, ends[np.searchsorted(ends, steps)] - steps + 1)
    total: NDArray[Any] = np.zeros(len(steps), np.float64)
    for offset in range(n):
        inside = np.minimum(steps + offset, len(reward) - 1)
        total += np.where(offset < horizon, gamma**offset * reward[inside].astype(np.float64), 0.0)
    discount = gamma ** horizon.astype(np.float64) * (1 - terminated[steps + horizon - 1].astype(np.float64))
    return NStep(total.astype(np.float32), discount.astype(np.float32), horizon)


class Gathered(NamedTuple):
    """Transitions of a batch as NumPy columns, [B, ...] each, before they become tensors.

    Stacks of frames in `obs` and `next_obs` may be views of the same frames, which were copied once.
    """

    obs: list[NDArray[Any]]  #: one array a leaf
    next_obs: list[NDArray[Any]]
    action: NDArray[Any]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    version: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]
    sample_info: SampleInfo


class Request(NamedTuple):
    """A batch that was sampled; its observations are on their way."""

    gathered: Any  #: `Gathered` or `GatheredTrajectories`, without observations; or rows that a replay keeps itself
    wanted: Wanted | None  #: observation rows; None for rows that a replay keeps itself


class StoredChunk(NamedTuple):
    """The record of a chunk that was inserted."""

    entry_id: bytes
    chunk_id: str
    epoch: str
    steps: int
    stored_bytes: int
    end: int  #: sequence number behind its last transition
    row_end: int  #: sequence number behind its last observation row
    shard: int = 0


class LiveChunks(deque[StoredChunk]):
    """The chunks that a replay holds, oldest first, with the bytes that they take in Redis by shard."""

    def __init__(self) -> None:
        super().__init__()
        self.stored_bytes: dict[int, int] = {}

    def append(self, chunk: StoredChunk) -> None:
        """Add the newest chunk."""
        super().append(chunk)
        self.stored_bytes[chunk.shard] = self.stored_bytes.get(chunk.shard, 0) + chunk.stored_bytes

    def popleft(self) -> StoredChunk:
        """Remove the oldest chunk."""
        chunk = super().popleft()
        self.stored_bytes[chunk.shard] -= chunk.stored_bytes
        return chunk


class TransitionStore:
    """n-step transitions over observation rows.

    Args:
        contract: what the stream holds.
        capacity: transitions expected to be alive, a first size; more make the rings grow.
        n_step: steps of a transition, 1 .. contract.lookahead + 1.
        gamma: discount factor of one step.
        observations: where the rows are; None: mirrored here.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        capacity: int,
        n_step: int,
        gamma: float,
        observations: Observations | None = None,
    ) -> None:
        self.contract = contract
        self.n_step = n_step
        self.gamma = gamma
        size = rows_expected(capacity)
        self.observations: Observations = observations or MirroredRows(contract, size)
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
            size,
        )

    def __len__(self) -> int:
        return len(self.transitions)

    def insert(self, chunk: Chunk) -> range:
        """Take a chunk's rows in, and derive the transitions of the steps it owns.

        Returns:
            Sequence numbers of the new transitions.
        """
        first_row = self.observations.insert(chunk)
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
        if (mask := chunk.extras.get(NEXT_MASK_COLUMN)) is not None:  # of the observation to bootstrap from
            values[f"extra.{NEXT_MASK_COLUMN}"] = mask[own + returns.horizon - 1]
        if self.contract.stack > 1:
            depth = chunk.depth[own]
            values |= {"depth": depth, "next_depth": depth + returns.horizon}
        first = self.transitions.append(values, len(own))
        return range(first, first + len(own))

    def evict(self, chunk: StoredChunk) -> None:
        """Free the oldest chunk's rows and transitions."""
        self.transitions.free_until(chunk.end)
        self.observations.free_until(chunk.row_end)

    def gather(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Gathered:
        """Copy the transitions with these sequence numbers, sampled with these probabilities.

        Raises:
            LookupError: observations of some are gone from Redis.
        """
        gathered: Gathered | None = self.collect(self.request(indices, probability))
        if gathered is None:
            raise LookupError("some of the observations are gone from Redis")
        return gathered

    def request(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Request:
        """Request transitions, which `collect` returns in the same order."""
        columns, slots = self.transitions.columns, indices % self.transitions.size
        row, next_row = columns["row"].take(slots), columns["next_row"].take(slots)
        wanted: Wanted = (row, next_row)
        if self.contract.stack > 1:
            stack, next_depth = self.contract.stack, columns["next_depth"].take(slots)
            if self.n_step == 1:  # both share all frames but one
                wanted = (stack_rows(next_row, next_depth, stack + 1),)
            else:
                depth = columns["depth"].take(slots)
                wanted = (stack_rows(row, depth, stack), stack_rows(next_row, next_depth, stack))
        self.observations.ask(wanted)
        version = columns["version"].take(slots)
        gathered = Gathered(
            obs=[],
            next_obs=[],
            action=columns["action"].take(slots, axis=0),
            reward=columns["reward"].take(slots),
            discount=columns["discount"].take(slots),
            version=version,
            extras={extra.name: columns[f"extra.{extra.name}"].take(slots, axis=0) for extra in self.contract.extras},
            sample_info=SampleInfo(indices, probability, version, age_steps=self.transitions.head - 1 - indices),
        )
        return Request(gathered, wanted)

    def collect(self, request: Request) -> Any | None:
        """Wait for the observations of the oldest request; None if some are gone, so that others must be sampled."""
        found = self.observations.collect(request.wanted or ())
        if found is None:
            return None
        gathered: Gathered = request.gathered
        if len(found) == 1:
            gathered.obs.extend(frames[:, :-1] for frames in found[0])
            gathered.next_obs.extend(frames[:, 1:] for frames in found[0])
        else:
            gathered.obs.extend(found[0])
            gathered.next_obs.extend(found[1])
        return gathered

    def are_gone(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the transitions [B] whose observations are known to be gone from Redis."""
        return self.observations.are_gone(self.transitions.take("row", indices))


def stack_rows(row: NDArray[np.int64], depth: NDArray[np.int64], frames: int) -> NDArray[np.int64]:
    """[B, frames] rows of the frames that end with `row`, oldest first; the episode's first frame is repeated.

    Args:
        row: [B] of the newest frame.
        depth: [B] frames of its episode before it.
        frames: frames of a stack.
    """
    back = np.arange(frames - 1, -1, -1)
    return row[:, None] - np.minimum(back, depth[:, None])
