"""`RlxEnvPool`: every open RLX session is an environment of this pool, driven by the agent loop like any other.

Two threads meet here. The server's thread puts events into a queue, a list of them in each turn of its event loop; the
agent loop's thread calls `recv` and `send`, and owns everything else in this file, so there is no lock. Actions go back
to the server through `deliver`, a whole batch in one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from surreal.base.contracts import AgentView, EnvPool
from surreal.base.specs import ObsSpec
from surreal.base.types import EXECUTED_ACTION, StepBatch, StepKind
from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import EpisodeCounter
from surreal.rlx.pool.batches import BatchBuilder, Event, LastEvent, LiveEvent
from surreal.rlx.pool.gathering import Gathering, Intake
from surreal.rlx.pool.held_steps import FinalRewards
from surreal.rlx.pool.ranges import DEFAULT_LIMITS, ValueLimits
from surreal.rlx.pool.states import StateReader
from surreal.rlx.pool.wrapping import RemoteWrappers
from surreal.rlx.protocol.errors import RlxRequestError

#: Takes actions with the sessions they are for.
Deliver = Callable[[Sequence[tuple[Any, Any]]], None]
#: Takes slots that may be given to other sessions.
Release = Callable[[Sequence[int]], None]


class RlxEnvPool(EnvPool):
    """Sessions of an `RlxServer` as environments. In a batch, `closed_ids` come before its rows: an env slot that is
    closed may begin again in the same batch.

    Args:
        action_space: the environments' action space, as clients see it.
        observation_space: the environments' observation space; None: states reach the agent unchanged, in an array of
            objects, and are not recorded.
        wrappers: conversion between these spaces and the agent; None: none. Not for raw states.
        frame_stack: frames that the agent sees at once, >= 1; clients send them one at a time.
        gather_window_s: longest wait in s for requests of further sessions once one waits, >= 0; there is no
            wait when all sessions are waiting. Raising it makes batches larger and answers later.
        max_wait_s: replaces the window: longest time in s, > 0, from a session's request to its action that such a wait
            may lead to. Raising it makes batches larger, which costs less, and answers later.
        gather_max: rows of a batch, >= 1; more are left for the next.
        explore: whether the agent may explore at all; sessions that exploit never do.
        record: whether steps are experience to be sent; those of sessions that exploit never are.
        interventions: whether clients may replace actions, and then send `executed_action`.
        limits: which numbers of the observation space are refused.
        policies: agents that sessions may name. They act within `recv`, greedily: the loop neither sees nor records
            these sessions.

    Attributes:
        reader: reads states for the sessions; None without an observation space.
        wrappers, frame_stack: as given.
        frame_spec: spec of one frame, as the agent sees it.
        records: whether sessions that learn are experience.

    Raises:
        ValueError: a space is of a kind that has no arrays, or is to be stacked but is not one array.
        EnvError: actions of this space cannot be handed over.
    """

    keeps_time = True  # its clients may, and do not tell

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        observation_space: gymnasium.Space[Any] | None = None,
        *,
        wrappers: RemoteWrappers | None = None,
        frame_stack: int = 1,
        gather_window_s: float = 0.0,
        max_wait_s: float | None = None,
        gather_max: int = 1024,
        explore: bool = True,
        record: bool = True,
        interventions: bool = False,
        limits: ValueLimits = DEFAULT_LIMITS,
        policies: Mapping[str, AgentView] | None = None,
    ) -> None:
        # Sessions hand over the bytes of plain states as they are: they are looked at here, a whole batch at a time.
        is_plain = wrappers is None and frame_stack == 1
        self.reader = None
        if observation_space is not None:
            self.reader = StateReader(observation_space, limits, is_first_look=is_plain)
        self.wrappers = wrappers
        self.frame_stack = frame_stack
        self.obs_spec = ObsSpec((), {"dict": {}})
        if wrappers is not None:
            observation_space, action_space = wrappers.observation_space, wrappers.action_space
        if observation_space is not None:
            self.observation_space, self.obs_spec = observation_space, ObsSpec.from_space(observation_space)
        self.frame_spec = self.obs_spec
        if frame_stack != 1:
            if frame_stack < 1 or not self.obs_spec.is_array or observation_space is None:
                raise ValueError(f"frame_stack is {frame_stack}; it must be >= 1, and observations one array each")
            self.observation_space = batch_space(observation_space, frame_stack)
            self.obs_spec = ObsSpec.from_space(self.observation_space)
        self._adapter = ActionAdapter(action_space)
        self._has_interventions = interventions
        self.action_space = self._adapter.space
        self._builder = BatchBuilder(
            self.obs_spec, is_raw=self.reader is None, explore=explore, record=record and self.reader is not None
        )
        self.records = self._builder.record
        self._range = self.reader.plain_range if self.reader is not None and is_plain else None
        self._gathers = gather_window_s > 0 or max_wait_s is not None
        self._gathering = Gathering(gather_window_s, max_wait_s)
        self._began_s = 0.0  # when the last batch began
        self._max_rows = gather_max
        self._intake = Intake()
        self._deliver: Deliver = _nowhere
        self._release: Release = _nowhere
        self.policies = policies or {}
        self._batches = self._rows = 0
        self._episodes = EpisodeCounter()

    @property
    def num_envs(self) -> int:  # type: ignore[override]
        """Slots in use so far; it grows with the sessions that are open at the same time."""
        return self._intake.num_slots

    # -- the server's side -----------------------------------------------------------------------------------------

    def bind(self, deliver: Deliver, release: Release) -> None:
        """Name the server; both are called on the agent loop's thread."""
        self._deliver, self._release = deliver, release

    def put(self, events: Sequence[Event]) -> None:
        """Report an event of a session; called on the server's thread."""
        self._intake.queue.put((time.monotonic(), events))

    # -- the agent loop's side ---------------------------------------------------------------------------------------

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait for sessions that want an action, or whose episodes ended."""
        intake = self._intake
        intake.take_deferred()
        intake.take_ready()
        if not (intake.waiting or intake.ended or intake.cut):
            intake.take_next(timeout_s)
            intake.take_ready()
        if 0 < len(intake.waiting) < min(self._max_rows, len(intake.active)) and self._gathers:
            self._gather()
        self.wants = intake.wanted
        return self._make_batch()

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Hand over the actions; the server sends them on its own thread."""
        adapter, owed = self._adapter, self._intake.owed
        actions = np.asarray(actions, adapter.dtype)
        ids: list[int] = np.asarray(env_ids).tolist()
        shape = (len(ids), *adapter.shape)
        if actions.shape != shape:
            raise ValueError(f"actions of {len(ids)} rows must have shape {shape}, got {actions.shape}")
        if not owed.keys() >= set(ids) or len(set(ids)) != len(ids):
            raise ValueError(f"actions came for environments {ids}, but {sorted(owed)} wait for one")
        self._gathering.note_acting(time.monotonic() - self._began_s)
        # A list of Python's numbers where an action is one number: NumPy's are slow to handle one by one.
        rows = adapter.rows(actions) if adapter.shape else adapter.batch(actions).tolist()
        self._deliver([(owed.pop(env_slot), action) for env_slot, action in zip(ids, rows, strict=True)])

    def take_final(self) -> FinalRewards:
        """Return the rewards that became final, of steps whose rows `recv` has returned; see `HeldSteps`."""
        return self._intake.take_final()

    def executed(self, action: Any) -> NDArray[Any]:
        """Read an action that a client executed in place of the agent's; raises `RlxRequestError` for others."""
        if not self._has_interventions:
            raise RlxRequestError(f"{EXECUTED_ACTION} is not recorded; set env.interventions: true in the run")
        try:
            return self._adapter.flat(action)
        except ValueError as error:
            raise RlxRequestError(f"{EXECUTED_ACTION}: {error}") from error

    def show(self, outputs: Mapping[str, NDArray[Any]], env_ids: NDArray[np.int64]) -> None:
        copies = {name: column.copy() for name, column in outputs.items()}  # the agent may use its memory again
        for row, env_slot in enumerate(env_ids.tolist()):
            if names := self._intake.wants.get(env_slot):
                session = self._intake.owed[env_slot]
                session.outputs = {name: copies[name][row] if name in copies else None for name in names}

    def close(self) -> None:
        """Forget the server; sessions get no more actions."""
        self._deliver, self._release = _nowhere, _nowhere

    def awaited(self) -> str:
        count = len(self._intake.active)
        return f"waiting for the states of {count} sessions" if count else "waiting for a client to begin a session"

    def metrics(self) -> dict[str, float]:
        return {
            "env/steps_total": float(self._rows),
            "rlx/batches_total": float(self._batches),
            "rlx/rows_per_batch": self._rows / max(1, self._batches),
            "rlx/active_sessions_count": float(len(self._intake.active)),
            "rlx/outside_bounds_total": float(0 if self.reader is None else self.reader.departures.count),
            **self._episodes.metrics(),
        }

    def _gather(self) -> None:
        intake, now_s = self._intake, time.monotonic()
        before, end_s = len(intake.waiting), self._gathering.end_s(intake.oldest_s, now_s)
        if end_s <= now_s:
            return
        while len(intake.waiting) < min(self._max_rows, len(intake.active)):
            if not intake.take_next(end_s - time.monotonic()):
                break
            intake.take_ready()
        self._gathering.note_gain(len(intake.waiting) - before)

    def _act_by_name(self) -> None:
        """Act for the sessions that have named a policy."""
        for name, live in self._intake.take_named().items():
            batch, live = self._build([], live, [])
            if live:
                agent, ids = self.policies[name], batch.env_ids
                self._count(live)
                agent.shows = self.wants
                action = agent.act_batch(batch.obs, batch.explore & False, ids, batch.kind == int(StepKind.FIRST))
                if self.wants:
                    self.show(action.outputs, ids)
                self.send(action.actions, ids)

    def _count(self, live: Sequence[LiveEvent]) -> None:
        self._began_s = time.monotonic()
        self._batches += 1
        self._rows += len(live)
        for event in live:
            self._intake.owed[event.env_slot] = event.session

    def _make_batch(self) -> StepBatch:
        intake = self._intake
        if intake.named:
            self._act_by_name()
        ended, cut, live = intake.ended, intake.cut, intake.take_waiting(self._max_rows)
        intake.ended, intake.cut = [], []
        batch, live = self._build(ended, live, cut)
        if live:
            self._count(live)
        if count := batch.num_last:
            self._episodes.add(batch.info["episode_return"][:count], batch.info["episode_length"][:count])
        if intake.released:
            released, intake.released = intake.released, []
            self._release(released)
        return batch

    def _build(
        self, ended: list[LastEvent], live: list[LiveEvent], cut: list[int]
    ) -> tuple[StepBatch, list[LiveEvent]]:
        """Build a batch, without the rows that are refused; return it with its events that want an action."""
        batch = self._builder.build(ended, live, cut)
        bad = None if self._range is None else self._range.bad_rows(batch.obs)
        if bad is None:
            return batch, live
        ended, live = self._refuse(batch, bad, ended, live, cut)
        return self._builder.build(ended, live, cut), live

    def _refuse(
        self, batch: StepBatch, bad: NDArray[np.bool_], ended: list[LastEvent], live: list[LiveEvent], cut: list[int]
    ) -> tuple[list[LastEvent], list[LiveEvent]]:
        """Cut the episodes of bad rows, notify their sessions, and return the other rows."""
        last, rest = bad[: len(ended)].tolist(), bad[len(ended) :].tolist()
        cut += [event.env_slot for event, is_bad in zip(ended, last, strict=True) if is_bad]
        refused: list[tuple[Any, Any]] = []
        for row, event in enumerate(live, len(ended)):
            if bad[row] and self._range is not None:
                refused.append((event.session, self._range.error(batch.obs[row])))
                if not event.is_first:
                    cut.append(event.env_slot)
        self._deliver(refused)
        return (
            [event for event, is_bad in zip(ended, last, strict=True) if not is_bad],
            [event for event, is_bad in zip(live, rest, strict=True) if not is_bad],
        )


def _nowhere(_: Sequence[Any]) -> None:
    """Take the place of a server that has not started or has stopped."""
