"""The rows that a sender gathers, in order of arrival, cut into segments when a chunk leaves.

A *row* is one observation with the outcome that came with it and the action taken from it. The rows of all environments
of a sender go into one log, in the order they come, with one array assignment per column. `cut` then groups them by
environment into *segments*, vectorized, and pairs each action with the outcome in the next row:

    row        o0 FIRST    o1 MID    o2 MID    o3 LAST
    action     a0          a1        a2        -
    outcome    -           r1        r2        r3, terminated / truncated
    steps      (o0 a0 r1 o1)  (o1 a1 r2 o2)  (o2 a2 r3 o3)

A segment whose episode continues is *open*. With lookahead L, its last L steps and its last row stay in the log, and
the next chunk owns them. This chunk carries a copy of them, so it holds the n-step return (n = L + 1) of every step it
owns. A segment ends for good (all its steps are owned) at a LAST row, before a new FIRST row of the same environment,
when its environment is closed, and when the sender is closed. Without a LAST row, its last step is marked truncated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import BadValueError
from surreal.base.specs import ArraySpec
from surreal.base.types import IS_INTERVENTION, Action, StepBatch, StepKind
from surreal.base.values import FEW
from surreal.distributed.experience.codec import MAX_SEGMENTS, Contract, EncodedChunk, encode
from surreal.distributed.experience.data_contract import EXTRA_PREFIX, MASK_COLUMN, NEXT_MASK_COLUMN
from surreal.distributed.experience.open_rows import (
    BEGINS,
    HISTORY,
    KIND_MASK,
    LAST,
    TERMINATED,
    TRUNCATED,
    OpenRows,
    wrong_shape,
)


class Segments(NamedTuple):
    """The log's rows grouped by environment: one element per segment."""

    order: NDArray[np.int64]  #: [n] log positions, segment after segment
    start: NDArray[np.int64]  #: [S] first position of each segment in `order`
    end: NDArray[np.int64]  #: [S] last position, inclusive
    is_closed: NDArray[np.bool_]  #: [S] no more rows will follow
    history: NDArray[np.int64]  #: [S] rows at the start that only serve the stacks of the others
    own: NDArray[np.int64]  #: [S] number of steps that may leave now, >= 0


_FLAGS, _FLAG_SHIFT = 3, 2  # of an outcome


class RowLog(OpenRows):
    """Growable columns of rows; see the module.

    Args:
        contract: format of the rows; `lookahead` is L.
        capacity: rows allocated at first; the log doubles when it is full.
        mask_width: entries of the action masks in a pool's batches, for two columns of the contract; 0: none.
    """

    def __init__(self, contract: Contract, capacity: int, *, mask_width: int = 0) -> None:
        self.contract = contract
        self._mask_width = mask_width
        self.has_interventions = any(extra.name == IS_INTERVENTION for extra in contract.extras)
        self.length = self.carried = 0  # rows, and those at the front that an earlier chunk already contained
        self.offset = 0  # number of a row that was not carried, minus its position; the number never changes
        shape, dtype = contract.obs.leaves[0].shape, contract.obs.leaves[0].dtype
        #: Shape of a row, if an observation is one plain array; and its dtype, if that is a vector of a few floats.
        self.array_shape = shape if contract.obs.is_array and contract.stack == 1 else None
        is_vector = self.array_shape is not None and len(shape) == 1 and shape[0] <= FEW and dtype.kind == "f"
        self.vector_dtype = dtype if is_vector else None
        self._allocate(max(capacity, 16))

    def _allocate(self, capacity: int) -> None:
        contract = self.contract
        self.capacity = capacity
        self.env_slot, self.version = np.zeros((2, capacity), np.int32)
        self.step = np.zeros(capacity, np.int32)  # known for carried rows only
        self.code, self.reward = np.zeros(capacity, np.uint8), np.zeros(capacity, np.float32)
        self.action = _column(contract.action, capacity)
        self.leaves = [_column(leaf, capacity) for leaf in contract.obs.leaves]
        self.mask = np.ones((capacity, self._mask_width), np.bool_)
        self.is_intervention = np.zeros(capacity, np.bool_)
        others = (IS_INTERVENTION, *((MASK_COLUMN, NEXT_MASK_COLUMN) if self._mask_width else ()))
        self.extras = {extra.name: _column(extra, capacity) for extra in contract.extras if extra.name not in others}

    def reserve(self, rows: int) -> None:
        if self.length + rows <= self.capacity:
            return
        old, length = self._columns(), self.length
        self._allocate(max(2 * self.capacity, self.length + rows))
        for new_column, old_column in zip(self._columns(), old, strict=True):
            new_column[:length] = old_column[:length]

    def append_batch(self, batch: StepBatch, action: Action | None) -> None:
        """Copy a pool's rows, and the actions after the LAST ones (None: `set_actions` adds them)."""
        begin, end = self.length, self.length + len(batch.kind)
        self.reserve(end - begin)
        self.env_slot[begin:end] = batch.env_ids
        self.reward[begin:end] = batch.reward
        self.code[begin:end] = batch.kind
        if IS_INTERVENTION in batch.info:
            self._set_executed(batch)
        self.is_intervention[begin:end] = False
        if self._mask_width:
            self.mask[begin:end] = batch.info.get("action_mask", True)
        acting = begin + batch.num_last
        if batch.num_last:
            outcome = self.code[begin:acting]
            outcome += batch.terminated[: batch.num_last] * np.uint8(TERMINATED)
            outcome += batch.truncated[: batch.num_last] * np.uint8(TRUNCATED)
        obs = self.contract.obs
        leaves = [batch.obs] if obs.is_array and type(batch.obs) is np.ndarray else obs.flatten(batch.obs)
        for column, leaf in zip(self.leaves, leaves, strict=True):
            _copy_rows(column, begin, end, leaf if self.contract.stack == 1 else self._newest(leaf))
        if acting < end and action is not None:
            self.version[acting:end] = action.version
            for column, values in self._columns_of(action):
                _copy_rows(column, acting, end, values)
        self.length = end

    def _columns_of(self, action: Action) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Pair the columns that actions fill with their values."""
        if action.extras.keys() != self.extras.keys():
            raise ValueError(f"extras have columns {sorted(action.extras)} where {sorted(self.extras)} are agreed on")
        return [(self.action, action.actions), *((self.extras[name], action.extras[name]) for name in self.extras)]

    def _newest(self, stacks: NDArray[Any]) -> NDArray[Any]:
        """Return the newest frame of each stack [N, stack, ...]."""
        if stacks.ndim < 2 or stacks.shape[1] != self.contract.stack:
            raise ValueError(f"observations of shape {stacks.shape} are not stacks of {self.contract.stack} frames")
        return np.asarray(stacks[:, -1])

    def cut(self, max_bytes: int, held: int = 0) -> list[EncodedChunk]:
        """Encode all steps that may leave, and keep the rows that the next chunk needs.

        A chunk has at most `max_bytes`, uncompressed: segments that do not fit go into several, but a single one is
        never divided. The newest rows that are `held` stay, as if they had not come yet. After a `BadValueError`, all
        steps that should have left are dropped, and open episodes begin again with the newest row.
        """
        end = self.length = self.length - held
        try:
            return self._cut(max_bytes)
        finally:
            kept, self.offset = self.length, self.offset + end - self.length
            for column in self._columns() if held else ():
                column[kept : kept + held] = column[end : end + held]
            self.length = kept + held

    def _cut(self, max_bytes: int) -> list[EncodedChunk]:
        if not self.length:
            return []
        segments = self._segments()
        leaving = np.flatnonzero(segments.own)
        try:
            chunks = [self._encode(segments, group) for group in self._groups(segments, leaving, max_bytes)]
        except BadValueError:
            self._drop(segments)  # otherwise every later cut would fail as well
            raise
        self._keep(segments)
        return chunks

    def _segments(self) -> Segments:
        length, lookahead = self.length, self.contract.lookahead
        env_slot = self.env_slot[:length]
        if env_slot[0] == env_slot[-1] and (env_slot == env_slot[0]).all():
            order = np.arange(length)
        else:
            # NumPy sorts 16-bit integers by radix, which is several times faster.
            order = np.argsort(env_slot.astype(np.int16) if int(env_slot.max()) < 1 << 15 else env_slot, kind="stable")
            env_slot = env_slot[order]
        code = self.code[order]
        kind = code & KIND_MASK
        is_start = (kind == StepKind.FIRST) | ((code & BEGINS) != 0)
        is_start[0] = True
        changes = env_slot[1:] != env_slot[:-1]
        is_start[1:] |= changes
        is_start[1:] |= kind[:-1] == LAST
        start = np.flatnonzero(is_start)
        end = np.append(start[1:], length) - 1
        is_closed = kind[end] == LAST
        is_closed[:-1] |= ~changes[end[:-1]]  # the same environment began again
        history = np.zeros(len(start), np.int64)
        if self.contract.stack > 1:
            history = np.add.reduceat((code & HISTORY) != 0, start, dtype=np.int64)
        own = np.maximum(end - start - history - np.where(is_closed, 0, lookahead), 0)
        return Segments(order, start, end, is_closed, history, own)

    def _groups(self, segments: Segments, leaving: NDArray[np.int64], max_bytes: int) -> list[NDArray[np.int64]]:
        """Divide segments into those of one chunk each."""
        sizes = (segments.end[leaving] - segments.start[leaving] + 1) * self.contract.row_bytes
        max_bytes -= self.contract.table_head_bytes
        if 0 < len(leaving) <= MAX_SEGMENTS and sizes.sum() <= max_bytes:
            return [leaving]
        groups, filled = list[list[int]](), 0
        for segment, size in zip(leaving.tolist(), sizes.tolist(), strict=True):
            if not groups or filled + size > max_bytes or len(groups[-1]) == MAX_SEGMENTS:
                groups.append([])
                filled = 0
            groups[-1].append(segment)
            filled += size
        return [np.array(group) for group in groups]

    def _encode(self, segments: Segments, group: NDArray[np.int64]) -> EncodedChunk:
        start, own, history = segments.start[group], segments.own[group], segments.history[group]
        sizes = segments.end[group] - start + 1
        order = segments.order
        if len(group) != len(segments.start):
            order = order[np.repeat(start - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))]
        last = np.cumsum(sizes) - 1  # the last row of each segment begins no step, the first row ends none
        is_step = np.ones(len(order), np.bool_)
        is_step[last] = False
        if history.any():
            is_step &= (self.code[order] & HISTORY) == 0
        acted = order[is_step]
        came = order[1:][is_step[:-1]]
        flags = (self.code[came] >> _FLAG_SHIFT) & _FLAGS
        # A closed segment without a LAST row was cut by a new FIRST row: its last step is truncated.
        cut = segments.is_closed[group] & ((self.code[order[last]] & KIND_MASK) != LAST)
        if cut.any():
            flags[(np.cumsum(sizes - 1 - history) - 1)[cut]] |= TRUNCATED >> _FLAG_SHIFT
        columns = {"action": self.action.take(acted, axis=0), "reward": self.reward.take(came), "flags": flags}
        columns["version"] = self.version.take(acted)
        columns |= {EXTRA_PREFIX + name: column.take(acted, axis=0) for name, column in self.extras.items()}
        for name, rows in ((MASK_COLUMN, acted), (NEXT_MASK_COLUMN, came)) if self._mask_width else ():
            columns[EXTRA_PREFIX + name] = self.mask.take(rows, axis=0)
        if self.has_interventions:
            columns[EXTRA_PREFIX + IS_INTERVENTION] = self.is_intervention.take(acted)
        first_step = self._first_steps(segments.order[start]) + history
        env_slots = self.env_slot[segments.order[start]]
        table = np.stack([sizes, own, env_slots, first_step, history], axis=1).astype(np.int32)
        return encode(self.contract, table, columns, [column.take(order, axis=0) for column in self.leaves])

    def _first_steps(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the step numbers of rows at these log positions, each the first of its segment."""
        is_first = (self.code[positions] & KIND_MASK) == StepKind.FIRST
        return np.where(is_first | (positions >= self.carried), 0, self.step[positions]).astype(np.int64)

    def _keep(self, segments: Segments) -> None:
        """Move the rows that open segments still need to the front."""
        columns = (segments.start, segments.end, segments.own, segments.history)
        start, end, own, history = (column[~segments.is_closed] for column in columns)
        # The first row of the next chunk follows the steps that left; the frames of its stack come before it.
        kept_history = np.minimum(history + own, self.contract.stack - 1)
        begin = start + history + own - kept_history
        first_step = self._first_steps(segments.order[start]) + begin - start
        sizes = end - begin + 1
        total = int(sizes.sum())
        within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        positions = segments.order[np.repeat(begin, sizes) + within]
        # Stable arrival order is not needed across environments: rows of one segment stay in order.
        for column in self._columns():
            column[:total] = column[positions]
        self.step[:total] = np.repeat(first_step, sizes) + within
        if self.contract.stack > 1:
            self.code[:total] &= ~np.uint8(HISTORY)
            self.code[:total] |= (within < np.repeat(kept_history, sizes)) * np.uint8(HISTORY)
        self.length = self.carried = total

    def _drop(self, segments: Segments) -> None:
        """Drop all steps; the newest row of each open segment begins the next one."""
        newest = segments.order[segments.end[~segments.is_closed]]
        for column in self._columns():
            column[: len(newest)] = column[newest]
        self.code[: len(newest)] = StepKind.FIRST
        self.length, self.carried = len(newest), 0

    def _columns(self) -> list[NDArray[Any]]:
        fixed: list[NDArray[Any]] = [self.env_slot, self.code, self.step, self.reward, self.version, self.action]
        return [*fixed, self.is_intervention, self.mask, *self.leaves, *self.extras.values()]


def _column(spec: ArraySpec, capacity: int) -> NDArray[Any]:
    return np.zeros((capacity, *spec.shape), spec.dtype)


def _copy_rows(column: NDArray[Any], begin: int, end: int, rows: Any) -> None:
    if rows.shape != (wanted := (end - begin, *column.shape[1:])):
        raise wrong_shape(rows, wanted)
    column[begin:end] = rows
