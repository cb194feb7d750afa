"""Events that wait for a batch of an `RlxEnvPool`: `Intake` holds them, `Gathering` decides how long they wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from surreal.base.system.threads import HandoverQueue
from surreal.rlx.pool.batches import CutEvent, Event, FinalEvent, LastEvent, LiveEvent
from surreal.rlx.pool.held_steps import FinalRewards

#: Below this many rows gained by waiting, on average, waiting is not worth it, and is only tried now and then.
_WORTHWHILE_ROWS = 0.5
_RETRY_INTERVAL_BATCHES = 32
#: Weight of what was known before, in the running means.
_DECAY = 0.9


@dataclass(eq=False, repr=False)
class Gathering:
    """Decides when a batch begins, on the agent loop's thread.

    Larger batches cost less for each row, so a session may wait while its action still comes in time. Where others
    rarely come meanwhile, because their environments are slow or few, no session waits for them.
    """

    window_s: float  #: longest wait for requests of further sessions, >= 0
    #: longest time from a session's request to its action that a wait for others may lead to, > 0; it replaces the
    #: window. None: there is no such limit
    max_wait_s: float | None

    def __post_init__(self) -> None:
        self._acting_s = 0.0
        self._gain = 1.0
        self._batches = 0

    def end_s(self, oldest_s: float, now_s: float) -> float:
        """Return until when to wait; not after `now_s`: not at all."""
        if self._gain < _WORTHWHILE_ROWS and self._batches % _RETRY_INTERVAL_BATCHES:
            return now_s
        if self.max_wait_s is None:
            return now_s + self.window_s
        return oldest_s + self.max_wait_s - self._acting_s

    def note_gain(self, rows: int) -> None:
        """Take the number of rows that came during a wait."""
        self._gain = _DECAY * self._gain + (1 - _DECAY) * rows

    def note_acting(self, seconds: float) -> None:
        """Take the time from the beginning of a batch to its actions."""
        self._batches += 1
        # A slower batch than usual counts at once, because a deadline that is missed is worse than a small batch.
        self._acting_s = max(seconds, _DECAY * self._acting_s + (1 - _DECAY) * seconds)


class Intake:
    """Events of sessions that no batch has yet. The server's thread fills `queue`, the loop's thread has the rest."""

    def __init__(self) -> None:
        self.queue: HandoverQueue[tuple[float, Sequence[Event]]] = HandoverQueue()
        self.waiting: dict[int, LiveEvent] = {}  #: by env slot, the sessions that want an action
        self.oldest_s = 0.0  #: when the oldest of them came
        self.ended: list[LastEvent] = []  #: episodes that ended
        self.cut: list[int] = []  #: env slots whose episodes were given up
        self.released: list[int] = []  #: env slots whose sessions are gone
        self.owed: dict[int, Any] = {}  #: env slot to session, for rows that the agent has and did not answer
        self.named: dict[int, str] = {}  #: env slot to policy, where the session has named one
        #: env slot to names of outputs, where the session wants some; `wanted` are those of all of them
        self.wants: dict[int, tuple[str, ...]] = {}
        self.wanted: frozenset[str] = frozenset()
        self.active: set[int] = set()  #: env slots of sessions that have asked for actions
        self.num_slots = 0  #: env slots in use so far
        self._deferred: list[CutEvent] = []
        self._final: dict[int, float | None] = {}  # rewards that may no longer change, by step

    def take_ready(self) -> None:
        while (arrival := self.queue.take(0.0)) is not None:
            self._take(*arrival)

    def take_next(self, timeout_s: float) -> bool:
        arrival = self.queue.take(timeout_s)
        if arrival is not None:
            self._take(*arrival)
        return arrival is not None

    def _take(self, time_s: float, events: Sequence[Event]) -> None:
        if not self.waiting:
            self.oldest_s = time_s
        for event in events:
            if type(event) is LiveEvent:
                self.waiting[event.env_slot] = event
                if event.is_first:
                    self.active.add(event.env_slot)
                    self.num_slots = max(self.num_slots, event.env_slot + 1)
                    self._want(event.env_slot, event.wants)
                    self.named.pop(event.env_slot, None)
                    if event.policy is not None:
                        self.named[event.env_slot] = event.policy
            elif type(event) is LastEvent:
                if event.env_slot not in self.named:
                    self.ended.append(event)
            elif type(event) is FinalEvent:
                self._final[event.step_id] = event.reward
            else:
                self._take_cut(event)  # type: ignore[arg-type]

    def _want(self, env_slot: int, names: tuple[str, ...]) -> None:
        if self.wants.pop(env_slot, ()) != names:
            self.wants[env_slot] = names
            self.wanted = frozenset().union(*self.wants.values())

    def _take_cut(self, event: CutEvent) -> None:
        env_slot = event.env_slot
        if env_slot in self.owed:
            # The agent is about to act in it, so the env slot must not close before.
            self._deferred.append(event)
            return
        waiting = self.waiting.pop(env_slot, None)
        if env_slot in self.named:
            pass  # the loop knows nothing of it
        elif waiting is not None and not waiting.is_first:
            # Its last step is complete: the state that came is the one to bootstrap from.
            self.ended.append(
                LastEvent(
                    env_slot, waiting.state, waiting.reward, False, waiting.is_exploiting, float("nan"), 0,
                    waiting.executed, waiting.step_id,
                )
            )  # fmt: skip
        elif waiting is None and event.has_episode:
            self.cut.append(env_slot)
        if event.is_gone:
            self.active.discard(env_slot)
            self._want(env_slot, ())
            self.named.pop(env_slot, None)
            self.released.append(env_slot)

    def take_deferred(self) -> None:
        """Take the cuts that had to wait for the agent."""
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self._take_cut(event)

    def take_named(self) -> dict[str, list[LiveEvent]]:
        """Remove and return the waiting sessions that have named a policy, by its name."""
        groups: dict[str, list[LiveEvent]] = {}
        for env_slot in self.named.keys() & self.waiting.keys():
            groups.setdefault(self.named[env_slot], []).append(self.waiting.pop(env_slot))
        return groups

    def take_waiting(self, most: int) -> list[LiveEvent]:
        """Remove and return so many of the waiting sessions, the oldest first."""
        live = list(islice(self.waiting.values(), most))
        if len(live) == len(self.waiting):
            self.waiting.clear()
        for event in live if self.waiting else ():
            del self.waiting[event.env_slot]
        return live

    def take_final(self) -> FinalRewards:
        """Remove and return the final rewards of steps that are not among the waiting ones."""
        if not self._final:
            return self._final
        still_waiting = {event.step_id for event in self.waiting.values()}
        taken = {step_id: reward for step_id, reward in self._final.items() if step_id not in still_waiting}
        self._final = {step_id: reward for step_id, reward in self._final.items() if step_id in still_waiting}
        return taken
