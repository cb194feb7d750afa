"""`RatePool`: environments of the real world, whose actions leave at a fixed rate (`env.rate_hz`).

A separate thread drives the environments; the agent's loop does not know it:

    thread                                           agent's loop
    wait for the deadline
    step the environments with the actions  ------>  recv: observations
    (late ones: the safe action)            <------  send: actions, at any time before the next deadline

An observation is taken right after the action of its deadline has left, and the action chosen for it leaves at the next
deadline: a step of the environment commands and observes, and does not wait.

With `interventions`, a step whose action was late is an intervention: experience keeps the action that was executed.
Otherwise it is not experience, because the agent did not choose what happened: its episode's experience ends before it,
and continues with the next observation that the agent gets, as a new segment. The same applies to observations that the
agent had no time for, which are dropped.

In a pause, the safe action is taken once, and nothing after it. The first action after a pause is the safe one too:
the agent's was chosen for what was observed before.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import EnvPool
from surreal.base.system.deadlines import Deadlines
from surreal.base.system.process import run_in_real_time
from surreal.base.system.threads import Supervisor
from surreal.base.tree import map_leaves, take_rows
from surreal.base.types import EXECUTED_ACTION, IS_INTERVENTION, StepBatch, StepKind
from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import checked_actions, empty_batch

logger = logging.getLogger(__name__)

#: Longest wait of the thread before it looks whether it must end, s.
_MAX_WAIT_S = 0.5
_JOIN_TIMEOUT_S = 10.0
#: At Python's default of 5 ms, the thread would wait that long for another one that is busy.
_SWITCH_INTERVAL_S = 0.0005
#: Batches of ends of episodes that wait for the agent, at most.
_MAX_READY = 256


class RatePool(EnvPool):
    """Drives another pool at a fixed rate, from the first `recv` on.

    Args:
        pool: steps its environments when all of them have an action.
        rate_hz: steps per second, > 0.
        safe_action: taken in place of an action that is late, see `safe_action_of`; None: the environment's last one,
            or before the first of an episode, zeros (or what is nearest to them in the space).
        interventions: whether experience may hold actions that were not the agent's, see `EnvPool`.
        is_realtime: whether the process gets a real-time priority, see `run_in_real_time`.
    """

    keeps_time = True

    def __init__(
        self,
        pool: EnvPool,
        rate_hz: float,
        safe_action: NDArray[Any] | None = None,
        *,
        interventions: bool = False,
        is_realtime: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_envs, self.obs_spec = pool.num_envs, pool.obs_spec
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.deadlines = Deadlines(rate_hz, clock=clock)
        self._pool, self._clock, self._safe = pool, clock, safe_action
        self._has_interventions = interventions
        self._adapter = ActionAdapter(pool.action_space)
        self._empty = empty_batch(pool.obs_spec)
        self._supervisor = Supervisor("rate")
        self._is_started, self._is_realtime = False, is_realtime
        self._in_flight = pool.num_envs  # environments whose next row is still to come
        self._is_paused = self._rests = False  # whether a pause was asked for, and has begun
        self._changed = threading.Condition()  # guards everything below
        self._actions = np.repeat(self._adapter.default()[None], pool.num_envs, axis=0)  # taken last
        self._chosen = self._actions.copy()  # by the agent, for the next deadline
        flags = np.zeros((5, pool.num_envs), np.bool_)
        self._waits, self._has_action, self._is_asked, self._is_cut, self._is_replaced = flags
        self._ready: deque[tuple[StepBatch, float]] = deque(maxlen=_MAX_READY)  # with the time of observation
        self._observed_s = 0.0

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait for the newest observations; starts the thread. Raises `ThreadFailedError` if the thread failed."""
        self._supervisor.check()
        if not self._is_started:
            if self._is_realtime:  # the caller's thread too: the threads wait for each other
                run_in_real_time()
            self._is_started = True
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
            self.deadlines.restart()
            self._supervisor.spawn("deadlines", self.step)
        with self._changed:
            self._changed.wait_for(lambda: self._ready or not self._supervisor.is_running, timeout_s)
            return self._take()

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Take actions for the next deadline. One whose deadline has passed is ignored."""
        actions, ids = checked_actions(self._adapter, actions, env_ids)
        with self._changed:
            is_on_time = self._is_asked[ids]
            on_time = ids[is_on_time]
            self._chosen[on_time] = actions[is_on_time]
            self._has_action[on_time] = True
            self._is_asked[on_time] = False
        self.deadlines.add_latency(self._clock() - self._observed_s)

    def pause(self) -> None:
        """Take the safe action at the next deadline, and then no action until `resume`; from any thread or signal."""
        self._is_paused = True

    def resume(self) -> None:
        """End a pause; from any thread or signal."""
        self._is_paused = False

    def step(self) -> None:
        """Wait for the deadline, or act and observe if it has come; the thread's body."""
        left_s, pauses = self.deadlines.left_s(), self._is_paused
        if left_s > 0 or (pauses and self._rests):
            self._supervisor.stop_event.wait(min(left_s if left_s > 0 else self.deadlines.period_s, _MAX_WAIT_S))
            return
        if pauses or self._rests:
            logger.info("%s", "paused" if pauses else "resumed")
        self._act(is_safe=pauses or self._rests)
        is_reset, self._rests = self._rests, pauses  # a pause is like a reset: no deadline is missed by it
        while self._in_flight and not self._supervisor.stop_event.is_set():
            is_reset |= self._offer(self._pool.recv(_MAX_WAIT_S))
        if is_reset and self.deadlines.left_s() < -self.deadlines.period_s:
            self.deadlines.restart()  # resets take their time, and no deadline is missed by it
        else:
            self.deadlines.advance()

    def close(self) -> None:
        self._supervisor.stop()
        self._supervisor.join(_JOIN_TIMEOUT_S)
        self._pool.close()

    def awaited(self) -> str:
        return "paused" if self._is_paused else self._pool.awaited()

    def metrics(self) -> dict[str, float]:
        """Return the pool's own metrics, latencies, and the deadlines that were missed."""
        return {**self._pool.metrics(), **self.deadlines.metrics("agent")}

    def _act(self, *, is_safe: bool) -> None:
        """Hand the environments their actions; the safe one to all if `is_safe`."""
        with self._changed:
            ids = np.flatnonzero(self._waits)
            in_time = self._has_action[ids] & (not is_safe)
            late, on_time = ids[~in_time], ids[in_time]
            self._actions[on_time] = self._chosen[on_time]
            if len(late):
                if not is_safe:
                    self.deadlines.miss()
                if self._safe is not None:
                    self._actions[late] = self._safe
                # After a pause, the outcome is not that of the last observation.
                is_seen = (self._is_asked[late] | self._has_action[late]) & (not self._rests)
                self._is_replaced[late] = is_seen & self._has_interventions
                self._is_cut[late] = ~self._is_replaced[late]
                self._is_asked[late] = False
                # What the agent has not seen yet is outdated, except the ends of episodes.
                ended = [(take_rows(batch, batch.kind == StepKind.LAST), at) for batch, at in self._ready]
                self._ready.clear()
                self._ready.extend((batch, at) for batch, at in ended if batch.num_last or len(batch.closed_ids))
            self._waits[ids] = self._has_action[ids] = False
            actions = self._actions[ids]
        if len(ids):
            self._pool.send(actions, ids)
            self._in_flight += len(ids)

    def _offer(self, batch: StepBatch) -> bool:
        """Keep a copy of a batch for the agent; returns whether an episode began."""
        observed_s = self._clock()
        if not len(batch.kind) and not len(batch.closed_ids):
            return False
        acting = batch.env_ids[batch.num_last :]
        first = acting[batch.kind[batch.num_last :] == StepKind.FIRST]
        self._in_flight -= len(acting)
        copied = self._with_replaced(StepBatch(*(map_leaves(_copy, column) for column in batch)))
        with self._changed:
            self._actions[first] = self._adapter.default()
            self._waits[acting] = True
            self._ready.append((copied, observed_s))
            self._changed.notify()
        return bool(len(first))

    def _with_replaced(self, batch: StepBatch) -> StepBatch:
        """Name the safe actions that led to these rows, unless the environment names others."""
        is_replaced = self._is_replaced[batch.env_ids] & (batch.kind != StepKind.FIRST)
        self._is_replaced[batch.env_ids] = False
        if not is_replaced.any():
            return batch
        info, executed = dict(batch.info), self._actions[batch.env_ids]
        if IS_INTERVENTION in info:
            executed[info[IS_INTERVENTION]] = info[EXECUTED_ACTION][info[IS_INTERVENTION]]
            is_replaced |= info[IS_INTERVENTION]
        return batch._replace(info={**info, IS_INTERVENTION: is_replaced, EXECUTED_ACTION: executed})

    def _take(self) -> StepBatch:
        """Return the next batch that is ready, in which episodes with a late action begin again."""
        if not self._ready:
            return self._empty
        batch, self._observed_s = self._ready.popleft()
        acting = batch.env_ids[batch.num_last :]
        self._is_asked[acting] = True
        is_cut = self._is_cut[batch.env_ids]
        if not is_cut.any():
            return batch
        cut = np.unique(batch.env_ids[is_cut])
        self._is_cut[acting] = False
        is_cut[: batch.num_last] = False
        batch.kind[is_cut], batch.reward[is_cut] = StepKind.FIRST, 0.0
        return batch._replace(closed_ids=np.union1d(batch.closed_ids, cut))


def safe_action_of(value: Any, space: gymnasium.Space[Any]) -> NDArray[Any] | None:
    """Read an `env.safe_action`: "last" (None), or an action of the space as agents see it, flat, discrete ones counted
    from 0. A number stands for an array that is full of it. Raises `ValueError` if it is not in the space.
    """
    if value == "last":
        return None
    adapter = ActionAdapter(space)
    try:
        given = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"is {value!r}; it must be last, a number, or numbers of shape {adapter.shape}") from None
    with np.errstate(all="ignore"):
        action = np.broadcast_to(given, adapter.shape if given.ndim == 0 else given.shape).astype(adapter.dtype)
    is_same = np.isfinite(action).all() and np.allclose(action, given)
    if not is_same or not space.contains(action if adapter.shape else action.item()):
        raise ValueError(f"is {value!r}, which is not an action of {space}")
    return action


def _copy(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
