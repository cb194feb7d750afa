"""`HeldSteps`: holds back steps of sessions until their reward is known, between the agent's loop and its sender.

    loop --send_batch--> HeldSteps --send_batch--> sender
                             ^
    server's thread --which rewards are final, through the pool

A step with a number in the column `pending_step` is kept, with all later rows of its environment. They are sent on in
their order as soon as its reward is final. Rows of other environments pass. Everything here runs on the loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import StepSender
from surreal.base.tree import take_actions, take_rows
from surreal.base.types import Action, StepBatch

#: Column of a pool's batches: the number of the step whose outcome a row has, if its reward may still change; else 0.
PENDING_STEP = "pending_step"
#: Steps whose reward is final, and the rewards that replace those that were sent; None: the reward stays.
FinalRewards = Mapping[int, float | None]

_NO_IDS: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass
class _HeldRow:
    """One row, or the end of an environment without one."""

    batch: StepBatch
    action: Action
    step_id: int  #: of its step, while that is pending; 0: it is not


class HeldSteps:
    """A `StepSender` around another; `take_final` returns the rewards that became final since its last call."""

    def __init__(self, sender: StepSender, take_final: Callable[[], FinalRewards]) -> None:
        self._sender = sender
        self._take_final = take_final
        self._rows: dict[int, deque[_HeldRow]] = {}  # by env slot, the oldest first
        self._pending: dict[int, _HeldRow] = {}  # by number of the step

    @property
    def global_step(self) -> int:
        return self._sender.global_step

    @property
    def sent_through(self) -> tuple[str, int]:
        return self._sender.sent_through

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        if self._rows or PENDING_STEP in batch.info:
            batch, action = self._hold(batch, action)
        self._sender.send_batch(batch, action)
        self._settle()

    def send_outcomes(self, batch: StepBatch) -> None:
        self._sender.send_outcomes(batch)

    def send_actions(self, env_ids: NDArray[np.int64], record: NDArray[np.bool_], action: Action) -> None:
        self._sender.send_actions(env_ids, record, action)

    def flush_due(self) -> None:
        self._settle()
        self._sender.flush_due()

    def flush(self) -> None:
        self._settle()
        self._sender.flush()

    def release(self) -> None:
        """Send on all rows with the rewards that they have."""
        self._settle()
        for step in self._pending.values():
            step.step_id = 0
        self._pending.clear()
        for env_id in list(self._rows):
            self._send_on(env_id)

    def _hold(self, batch: StepBatch, action: Action) -> tuple[StepBatch, Action]:
        """Keep rows that are pending, or come after such rows; returns the others."""
        is_closed = np.array([env_id in self._rows for env_id in batch.closed_ids.tolist()], np.bool_)
        keeps_none = np.zeros(len(batch.kind), np.bool_)
        for env_id in batch.closed_ids[is_closed].tolist():
            closing = take_rows(batch, keeps_none)._replace(closed_ids=np.array([env_id], np.int64))
            self._rows[env_id].append(_HeldRow(closing, take_actions(action, keeps_none[batch.num_last :]), 0))
        step_ids = np.where(batch.record, batch.info.get(PENDING_STEP, 0), 0).tolist()
        passes = ~keeps_none
        for row, env_id in enumerate(batch.env_ids.tolist()):
            if not step_ids[row] and env_id not in self._rows:
                continue
            passes[row] = False
            is_row = keeps_none.copy()
            is_row[row] = True
            alone = take_rows(batch, is_row)._replace(closed_ids=_NO_IDS)
            held = _HeldRow(alone, take_actions(action, is_row[batch.num_last :]), step_ids[row])
            self._rows.setdefault(env_id, deque()).append(held)
            if held.step_id:
                self._pending[held.step_id] = held
        rest = take_rows(batch, passes)._replace(closed_ids=batch.closed_ids[~is_closed])
        return rest, take_actions(action, passes[batch.num_last :])

    def _settle(self) -> None:
        """Send on the rows that waited for rewards which are final now."""
        for step_id, reward in self._take_final().items():
            step = self._pending.pop(step_id, None)
            if step is None:
                continue
            step.step_id = 0
            if reward is not None:
                step.batch.reward[0] = reward
            self._send_on(int(step.batch.env_ids[0]))

    def _send_on(self, env_id: int) -> None:
        rows = self._rows[env_id]
        while rows and not rows[0].step_id:
            row = rows.popleft()
            self._sender.send_batch(row.batch, row.action)
        if not rows:
            del self._rows[env_id]
