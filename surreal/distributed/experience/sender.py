"""ExpSender: experience from an agent into the Redis replay, in chunks.

The agent loop calls `send_batch` (a pool's rows at a time), your own loop calls `send` (a step at a time). One sender
serves one of the two, from one thread. Steps are copied into a `RowLog`. A chunk leaves when there are enough steps or
the oldest is too old, in one call to Redis. "Acknowledged" means that Redis executed this call.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from surreal.base.errors import BadValueError, ContractError, RedisUnavailableError, ReplayFullError
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.system.process import least_new_rows
from surreal.base.tree import take, take_actions, take_rows
from surreal.base.types import Action, Obs, StepBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.data_contract import MASK_COLUMN, MAX_STACK, Contract, extra_specs, frame_spec
from surreal.distributed.experience.row_log import RowLog
from surreal.distributed.experience.sharded_outbox import make_outbox
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.single_step_sender import SingleStepSender

logger = logging.getLogger(__name__)


class ExpSender(SingleStepSender):
    """Gathers steps into chunks and stores them in the replay's stream.

    Args:
        client: the replay server, or the `ReplayShards` if there are several.
        chunk_steps: steps (of all environments together) after which a chunk leaves. More steps cost fewer calls per
            step, but make experience older when it arrives. Stacked frames wait for more steps if a chunk would repeat
            more than 0.3 frames for each new one.
        chunk_max_bytes: largest content of a chunk, bytes, before compression. Rows leave when they fill a chunk; they
            leave in several chunks if most of one would be repeated rows. A single segment may be larger.
        max_delay_s: age of the oldest step after which a chunk leaves, s; checked when steps come, and in `flush_due`.
        lookahead: steps repeated at the end of a segment; learners of this stream may use n-step returns up to
            n = lookahead + 1.
        on_full: "wait" while the replay is full or the limiter gives no credit, or "drop" the chunk; both are counted.
        wait_timeout_s: longest wait for Redis or for room, s.
        is_limited: whether the samples-per-insert limiter of the learner limits this sender.
        max_stream_bytes: bound of the stream while no learner has set one and the server has no memory limit.
        obs_spec, action_spec: specs of the experience; None: those of the first step.
        frame_stack: frames of an observation [frame_stack, ...]; if more than one, only the newest frame of each is
            stored, and readers stack the rows again. The stack after a reset must repeat the first frame. `send` also
            finds it in `info["frames"]`.
        compression: compression of the observations: None, "lz4" (fast) or "zstd" (smaller). It costs this process
            time for each chunk; readers must mirror the observations.
        interventions: whether something else may replace actions, as `info["executed_action"]` says; then the executed
            ones are recorded, and a column `is_intervention`.
        state_interval: steps of an episode between those that recurrent state is sent with. Readers can begin sequences
            at these steps only, and others take less memory.
        shard: number of the shard to send to; while it does not answer, another one is used.
        stop: ends a wait with `StoppedError` when it is set.
    """

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        chunk_steps: PositiveInt = 1024,
        chunk_max_bytes: PositiveInt = 1 << 20,
        max_delay_s: float = 1.0,
        lookahead: NonNegativeInt = 0,
        on_full: Literal["wait", "drop"] = "wait",
        wait_timeout_s: float = 300.0,
        is_limited: bool = False,
        max_stream_bytes: int = 2 << 30,
        obs_spec: ObsSpec | None = None,
        action_spec: ArraySpec | None = None,
        frame_stack: Annotated[int, Ge(1), Le(MAX_STACK)] = 1,
        compression: Literal["lz4", "zstd"] | None = None,
        interventions: bool = False,
        state_interval: PositiveInt = 1,
        shard: int = 0,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__()
        shards, drops = ReplayShards.of(client), on_full == "drop"
        self.outbox = make_outbox(shards, shard, drops_when_full=drops, max_stream_bytes=max_stream_bytes)
        self._push = partial(self.outbox.push, timeout_s=wait_timeout_s, is_limited=is_limited, stop=stop)
        self._chunk_steps = chunk_steps
        self._chunk_max_bytes = chunk_max_bytes
        self._max_delay_s, self._frame_stack, self._has_interventions = max_delay_s, frame_stack, interventions
        self._lookahead, self._compression, self._state_interval = lookahead, compression, state_interval
        self._obs_spec, self._action_spec = obs_spec, action_spec
        self._fitting_rows = 0  # rows that fit into a chunk
        self._batch_rows = 2  # most rows that came at once

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        """Record the rows of a pool and the actions taken in them (those after the LAST rows).

        Raises:
            ValueError: shapes or columns changed since the first call.
            BadValueError: a chunk had to leave, and holds a number that is not finite, or too large. The steps that
                had not left are dropped; later ones are accepted again.
            ReplayFullError, RedisUnavailableError: a chunk had to leave and could not, for `wait_timeout_s`.
            ContractError: the stream holds experience of another kind.
            StoppedError: `stop` was set during a wait.
        """
        is_whole = np.count_nonzero(batch.record) == len(batch.record)
        self._record(batch, action if is_whole else take_actions(action, batch.record[batch.num_last :]))

    def send_outcomes(self, batch: StepBatch) -> None:
        """Record the rows of a pool before actions are taken in them, which `send_actions` adds; raises as above.

        So the last steps of a round are complete, and can be sent, before parameters that learned from them act.
        """
        self._record(batch, None)

    def send_actions(self, env_ids: NDArray[np.int64], record: NDArray[np.bool_], action: Action) -> None:
        """Add the actions [N] taken in the last rows of these environments, which `send_outcomes` recorded.

        `record` tells which rows are experience to be sent.
        """
        if self._log is not None and record.any():
            self._log.set_actions(env_ids[record], action if record.all() else take_actions(action, record))

    def _record(self, batch: StepBatch, action: Action | None) -> None:
        if batch.closed_ids.size and self._log is not None:
            self._log.close_slots(batch.closed_ids)
        if np.count_nonzero(batch.record) != len(batch.record):
            batch = take_rows(batch, batch.record)
        if not len(batch.kind):
            self.flush_due()
            return
        if (log := self._log) is None:
            if action is None:
                raise ValueError("send_outcomes comes before send_batch: what an action is, is not known yet")
            log = self._open(batch, action)
        if log.length == log.carried:
            self._oldest_s = time.monotonic()
        log.append_batch(batch, action)
        if len(batch.kind) > self._batch_rows:
            self._batch_rows = len(batch.kind)
            self._set_flush_length(log)
        if log.length >= self._flush_length or time.monotonic() - self._oldest_s >= self._max_delay_s:
            self._leave()
        elif self.outbox.has_answer:  # so that a loop until `global_step` ends before it needs more credit
            self._push(waits_for_last=False)

    def flush_due(self) -> None:
        """Send steps that are older than `max_delay_s`; called when no steps come."""
        log = self._log
        has_rows = log is not None and log.length - self._count_held(log) > log.carried
        if has_rows and time.monotonic() - self._oldest_s >= self._max_delay_s:
            self._leave()
        elif self.outbox.has_answer:
            self._push(waits_for_last=False)

    def flush(self) -> None:
        """Send all complete steps, and wait; running episodes' last rows and held steps stay. May be repeated."""
        self._leave(waits_for_last=True)

    def _count_held(self, log: RowLog) -> int:
        return self._amendments.count_held(log) if self._amendments.is_used else 0

    def _leave(self, *, waits_for_last: bool = False) -> None:
        """Cut a chunk and send it; its answer is taken with the next one, unless `waits_for_last`."""
        if (log := self._log) is not None:
            carried = log.carried
            try:
                self.outbox.put(log.contract, log.cut(self._chunk_max_bytes, self._count_held(log)))
            finally:
                if log.carried != carried:
                    self._set_flush_length(log)
                self._oldest_s = time.monotonic()
        self._push(waits_for_last=waits_for_last)

    def close(self, timeout_s: float = 5.0) -> bool:
        """End all episodes after their last step, and send the remaining steps without asking the limiter.

        Steps that are held back leave with the reward that they have.

        Returns:
            Whether everything was acknowledged; the rest is counted as dropped.
        """
        self._singles.forget()
        self._amendments.forget()
        is_all_sent = False
        try:
            if self._log is not None:
                self._log.close_open_rows()
                self.outbox.put(self._log.contract, self._log.cut(self._chunk_max_bytes))
            self.outbox.push(timeout_s=timeout_s, is_limited=False)
            self.outbox.close()
            is_all_sent = not len(self.outbox)
        except (BadValueError, ReplayFullError, RedisUnavailableError, ContractError) as error:
            logger.warning("experience was not sent: %s", error)
        self.outbox.drop_all()
        return is_all_sent

    def discard(self) -> None:
        """End without sending the remaining steps, because they do not belong to the run; use instead of `close`."""
        self._singles.forget()
        self.outbox.drop_all()
        self.outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        return {**self.outbox.metrics(), **self._amendments.metrics()}

    @property
    def sent_through(self) -> tuple[str, int]:
        """Name of this sender in the stream, and number of the last acknowledged chunk; 0: none."""
        return self.outbox.sent_through

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, at the last acknowledgment."""
        return self.outbox.global_step

    def _open(self, batch: StepBatch, action: Action) -> RowLog:
        actions = np.asarray(action.actions)
        mask = None if MASK_COLUMN in action.extras else batch.info.get("action_mask")
        extras = extra_specs(action.extras, mask, interventions=self._has_interventions)
        spec = ArraySpec("action", actions.shape[1:], actions.dtype)
        return self._make_log(take(batch.obs, 0), spec, extras, mask_width=0 if mask is None else mask.shape[1])

    def _make_log(self, obs: Obs, action: ArraySpec, extras: tuple[ArraySpec, ...], *, mask_width: int = 0) -> RowLog:
        """Make the log for observations and actions like the first ones, unless their specs were given."""
        obs_spec = self._obs_spec or ObsSpec.from_obs(obs)
        if self._frame_stack > 1:
            obs_spec = frame_spec(obs_spec, self._frame_stack)
        form = (self._lookahead, self._frame_stack, self._compression, self._state_interval)
        contract = Contract(obs_spec, self._action_spec or action, extras, *form)
        self._fitting_rows = (self._chunk_max_bytes - contract.table_head_bytes) // contract.row_bytes
        capacity = min(self._chunk_steps, max(self._fitting_rows, 0)) + 64
        self._log = log = RowLog(contract, capacity, mask_width=mask_width)
        self._set_flush_length(log)
        return log

    def _set_flush_length(self, log: RowLog) -> None:
        """Set the length at which rows leave: with all their steps, or before the next rows would not fit into a chunk.

        Both wait until there are enough new rows, because each environment repeats some, however few new ones it has.
        """
        least = least_new_rows(log.carried)
        fitting = max(self._fitting_rows - self._batch_rows + 1 - log.carried, least)
        steps = max(self._chunk_steps, least) if self._frame_stack > 1 else self._chunk_steps
        self._flush_length = log.carried + min(steps, fitting)
