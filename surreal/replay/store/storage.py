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
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import SampleInfo
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.data_contract import NEXT_MASK_COLUMN
from surreal.replay.store.rows import Leaves, MirroredRows, Observations, PackedRing, rows_expected


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
    """Compute n-step rewards and discounts: sums of n steps, discounted by gamma each.

    Every step [S] of a chunk, lookahead included, has its observation row (a gap begins a new segment), its reward, and
    whether it ended its episode in a terminal state. `steps` [M] are the positions of those to compute: the chunk owns
    them.
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

    Stacks of frames in `obs` and `next_obs` may be views of the same frames, which were copied once. Of K batches that
    were gathered at once, the columns have [K, B, ...].
    """

    obs: list[NDArray[Any]]  #: one array a leaf
    next_obs: list[NDArray[Any]]
    action: NDArray[Any]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    version: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]
    sample_info: SampleInfo

    def split(self) -> list[Gathered]:
        """Split K batches; the columns of each are views."""
        version, info = self.version, self.sample_info
        ages = repeat(None) if info.age_steps is None else info.age_steps
        parts = zip(
            map(list, zip(*self.obs, strict=True)),
            map(list, zip(*self.next_obs, strict=True)),
            self.action,
            self.reward,
            self.discount,
            version,
            ({name: column[i] for name, column in self.extras.items()} for i in range(len(version))),
            map(SampleInfo, info.generation, info.probability, version, repeat(None), ages),
            strict=True,
        )
        return [Gathered(*part) for part in parts]


class Request(NamedTuple):
    """A batch that was sampled, or several at once; the observations are on their way."""

    gathered: Any  #: `Gathered` or `GatheredTrajectories`, without observations; or rows that a replay keeps itself
    rows: NDArray[np.int64] | None  #: observation rows; None for rows that a replay keeps itself
    batches: int = 1  #: how many; of several, `gathered` is to be split


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
        super().append(chunk)
        self.stored_bytes[chunk.shard] = self.stored_bytes.get(chunk.shard, 0) + chunk.stored_bytes

    def popleft(self) -> StoredChunk:
        chunk = super().popleft()
        self.stored_bytes[chunk.shard] -= chunk.stored_bytes
        return chunk


class TransitionStore:
    """n-step transitions over observation rows.

    Args:
        capacity: transitions expected to be alive, a first size; more make the rings grow.
        n_step: steps of a transition, 1 .. contract.lookahead + 1.
        gamma: discount factor of one step.
        observations: store of the observations; None: mirrored here.
    """

    def __init__(
        self, contract: Contract, *, capacity: int, n_step: int, gamma: float, observations: Observations | None = None
    ) -> None:
        self.contract = contract
        self.n_step = n_step
        self.gamma = gamma
        self._shares_frames = n_step == 1 and contract.stack > 1  # the stacks of `obs` and `next_obs`: all but one
        size = rows_expected(capacity)
        self.observations: Observations = observations or MirroredRows(contract, size)
        columns: dict[str, tuple[tuple[int, ...], Any]] = {
            "row": ((), np.int64),
            "action": (contract.action.shape, contract.action.dtype),
            "reward": ((), np.float32),
            "discount": ((), np.float32),
            "version": ((), np.int32),
        }
        if n_step > 1:
            columns["horizon"] = ((), np.int32)
        if contract.stack > 1:
            columns["depth"] = ((), np.int32)
        self.extras = tuple(extra for extra in contract.extras if extra not in contract.sparse)
        columns |= {f"extra.{extra.name}": (extra.shape, extra.dtype) for extra in self.extras}
        self.transitions = PackedRing(columns, size)

    def __len__(self) -> int:
        return len(self.transitions)

    def insert(self, chunk: Chunk) -> range:
        """Take a chunk's rows in, and derive the transitions of its steps; returns their sequence numbers."""
        first_row = self.observations.insert(chunk)
        own, columns = chunk.own, chunk.columns
        returns = n_step(chunk.obs_row, columns["reward"], chunk.terminated, own, n=self.n_step, gamma=self.gamma)
        values: dict[str, NDArray[Any]] = {
            "row": chunk.obs_row[own] + first_row,
            "horizon": returns.horizon,
            "action": columns["action"][own],
            "reward": returns.reward,
            "discount": returns.discount,
            "version": columns["version"][own],
        }
        values |= {f"extra.{name}": column[own] for name, column in chunk.extras.items()}
        if (mask := chunk.extras.get(NEXT_MASK_COLUMN)) is not None:  # of the observation to bootstrap from
            values[f"extra.{NEXT_MASK_COLUMN}"] = mask[own + returns.horizon - 1]
        if self.contract.stack > 1:
            values["depth"] = chunk.depth[own]
        first = self.transitions.append(values, len(own))
        return range(first, first + len(own))

    def evict(self, chunk: StoredChunk) -> None:
        self.transitions.free_until(chunk.end)
        self.observations.free_until(chunk.row_end)

    def gather(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Gathered:
        """Copy sampled transitions with their probabilities; raises `LookupError` if observations are gone."""
        gathered: Gathered | None = self.collect(self.request(indices, probability))
        if gathered is None:
            raise LookupError("some of the observations are gone from Redis")
        return gathered

    def request(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Request:
        """Request transitions [B], or [K, B] of several batches, which `collect` returns in the same order."""
        found = self.transitions.take_records(indices)
        rows = self._observation_rows(found, indices)
        self.observations.ask(rows)
        version = found["version"].astype(np.int64)
        gathered = Gathered(
            obs=[],
            next_obs=[],
            action=found["action"].copy(),
            reward=found["reward"].copy(),
            discount=found["discount"].copy(),
            version=version,
            extras={extra.name: found[f"extra.{extra.name}"].copy() for extra in self.extras},
            sample_info=SampleInfo(indices, probability, version, age_steps=self.transitions.head - 1 - indices),
        )
        return Request(gathered, rows, len(indices) if indices.ndim > 1 else 1)

    def collect(self, request: Request) -> Any | None:
        """Wait for the observations of the oldest request; None if some are gone, so that others must be sampled."""
        found = None if request.rows is None else self.observations.collect(request.rows)
        return None if found is None else self._complete(request, found)

    def _complete(self, request: Request, found: Leaves) -> Any:
        """Return what was requested, with the observations of its rows."""
        gathered: Gathered = request.gathered
        if self._shares_frames:
            for leaf, frames in zip(self.contract.obs.leaves, found, strict=True):
                frame: Any = (slice(None),) * len(leaf.shape)
                gathered.obs.append(frames[(..., slice(None, -1), *frame)])
                gathered.next_obs.append(frames[(..., slice(1, None), *frame)])
        else:
            gathered.obs.extend(leaf[0] for leaf in found)
            gathered.next_obs.extend(leaf[1] for leaf in found)
        return gathered

    def are_gone(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the transitions [B] whose observations are known to be gone from Redis."""
        return self.observations.are_gone(self.transitions.take("row", indices))

    def _observation_rows(self, found: NDArray[np.void], indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the observations and of the next ones, [2, ...] or [2, ..., stack]; or [..., stack + 1]."""
        stack = self.contract.stack
        if self._shares_frames:
            return stack_rows(found["row"] + 1, found["depth"] + 1, stack + 1)
        ahead = found["horizon"] if self.n_step > 1 else 1
        rows = _and_ahead(found["row"], ahead)
        return rows if stack == 1 else stack_rows(rows, _and_ahead(found["depth"], ahead), stack)


def _and_ahead(numbers: NDArray[Any], ahead: Any) -> NDArray[np.int64]:
    """Stack numbers [...], and those that are this far ahead, into [2, ...]."""
    both = np.empty((2, *numbers.shape), np.int64)
    both[0] = numbers
    np.add(numbers, ahead, out=both[1])
    return both


def stack_rows(row: NDArray[np.int64], depth: NDArray[Any], frames: int) -> NDArray[np.int64]:
    """[..., frames] rows of the frames that end with `row`, oldest first; the episode's first frame is repeated.

    `depth` [...] counts the frames of the episode before `row` [...].
    """
    back = np.arange(frames - 1, -1, -1)
    rows: NDArray[np.int64] = row[..., None] - np.minimum(back, depth[..., None])
    return rows
