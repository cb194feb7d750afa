"""OpenRows: the changes of rows that are in a `RowLog` already: their actions, and the ends of their segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import EXECUTED_ACTION, IS_INTERVENTION, Action, StepBatch, StepKind

#: A row's `code` holds its StepKind in the low two bits, and flags above them: two for its outcome; one for a FIRST row
#: that was closed before an action was taken from it (it became LAST, but still begins a segment); and one for a row
#: whose step has already left, which serves the stacks of the rows after it.
KIND_MASK, TERMINATED, TRUNCATED, BEGINS, HISTORY = 3, 4, 8, 16, 32
LAST = int(StepKind.LAST)


class OpenRows(ABC):
    """The columns of a log that change later."""

    length: int
    has_interventions: bool
    env_slot: NDArray[np.int32]
    version: NDArray[np.int32]
    code: NDArray[np.uint8]
    action: NDArray[Any]
    is_intervention: NDArray[np.bool_]

    @abstractmethod
    def _columns_of(self, action: Action) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Pair the columns that actions fill with their values."""

    def set_actions(self, env_slots: NDArray[np.int64], action: Action) -> None:
        """Set the actions taken in the last row of each of these environments; raises as `RowLog.append_batch`."""
        columns, rows = self._columns_of(action), self._last_rows(env_slots)
        self.version[rows] = action.version
        for column, values in columns:
            if values.shape != (wanted := (len(rows), *column.shape[1:])):
                raise wrong_shape(values, wanted)
            column[rows] = values

    def _set_executed(self, batch: StepBatch) -> None:
        """Replace the actions that led to the rows of a batch by those that were executed."""
        if not self.has_interventions:
            raise ValueError(f"the batch has {IS_INTERVENTION}, which a sender with interventions=True records")
        is_intervention = batch.info[IS_INTERVENTION] & (batch.kind != StepKind.FIRST)
        executed, rows = batch.info[EXECUTED_ACTION], self._last_rows(batch.env_ids[is_intervention])
        if executed.shape != (wanted := (len(batch.kind), *self.action.shape[1:])):
            raise wrong_shape(executed, wanted)
        self.action[rows], self.is_intervention[rows] = executed[is_intervention], True

    def _last_rows(self, env_slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the log position of the last row of each of these environments."""
        slots = self.env_slot[: self.length]
        last = np.zeros(int(slots.max(initial=0)) + 1, np.int64)
        last[slots] = np.arange(self.length)  # among equal slots, the last one wins
        return last[env_slots]

    def close_slots(self, env_slots: NDArray[np.integer[Any]]) -> None:
        """End the open segments of environments that ended without a LAST row: their last step becomes truncated."""
        for env_slot in env_slots:
            for row in np.flatnonzero(self.env_slot[: self.length] == env_slot)[-1:]:
                kind = self.code[row] & KIND_MASK
                if kind == StepKind.FIRST:
                    self.code[row] = LAST | BEGINS
                elif kind != LAST:
                    self.code[row] = LAST | TRUNCATED

    def close_open_rows(self) -> None:
        """End every open segment, as `close_slots` does."""
        self.close_slots(np.unique(self.env_slot[: self.length]))


def wrong_shape(rows: Any, wanted: tuple[int, ...]) -> ValueError:
    """Make the error for rows that NumPy would silently broadcast."""
    return ValueError(f"rows of shape {rows.shape} where {wanted} is agreed on")
