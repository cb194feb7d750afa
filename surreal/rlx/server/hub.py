"""The state that all connections of one server share: slots, the way to the pool and back, admission, counters.

Everything here runs on the server's thread, but for `on_actions` and `on_released`, which hand over to it.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import psutil

from surreal.base.metrics import RateMeter
from surreal.rlx.pool.batches import Event
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.metrics import MetricBudget
from surreal.rlx.server.pending import PendingSteps
from surreal.rlx.server.polling import Account, Poller, Turns
from surreal.rlx.server.settings import ServerSettings, message_limits

#: Turns of the event loop that events may wait for others: each comes with what arrived during the one before.
_MAX_TURNS = 32

#: Read from a socket at a time, at most: a piece of work that cannot be divided.
_BUFFER_BYTES = 1 << 16

#: Window of the statistics of answers, s.
_WINDOW_S = 10.0

#: Longest time from the opening of a connection to its `init`, s.
FIRST_REQUEST_S = 30.0
#: Strangers at the same time, at most; more lets more clients with slow networks connect at once.
_MAX_STRANGERS = 256
#: Free env slots from which on a new session may get one that still holds back steps.
_MAX_HELD_SLOTS = 256
#: Files that the rest of the process may still open.
_RESERVED_FILES = 64
#: Longest message of a connection that has no session yet, bytes.
FIRST_MESSAGE_BYTES = 1 << 16


class Connection(Protocol):
    """A connection as the hub uses it."""

    opened_s: float
    heard_s: float  #: when the last whole request came, or was answered
    is_known: bool  #: whether an `init` has been answered with `ready`

    @property
    def is_busy(self) -> bool:
        """Whether an action is being waited for."""

    def buffered_bytes(self) -> int:
        """Count the bytes of messages in flight."""

    def close(self) -> None:
        """Close it after the pending output was sent."""

    def abort(self) -> None:
        """Close it at once."""


class Waiting(Protocol):
    """A session that waits for an action."""

    def answer(self, action: Any) -> None:
        """Take the action, or the error in its place."""


class Hub:
    """See above."""

    def __init__(self, pool: RlxEnvPool, settings: ServerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.pool = pool
        self.settings = settings
        self.limits = settings.limits or message_limits(pool.reader)  #: limits on messages of clients
        self.connections: set[Connection] = set()  #: admitted connections
        self.strangers: dict[Connection, None] = {}  #: connections without a valid `init`, the oldest first
        self._max_connections = free_files()
        self._max_strangers = min(_MAX_STRANGERS, max(1, self._max_connections // 2))
        #: what a socket has is read into here, and copied before the next is read: asyncio's other way to read, a new
        #: buffer each time, costs more than all that is done with a small message
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.poller = Poller(loop, self.buffer)  #: reads the sockets
        self.turns = Turns(loop)  #: turns of connections that want more than their share of the thread
        self.strangers_account = Account()  #: total debt of strangers and of lost connections
        self.metric_budget = MetricBudget()  #: budget of the metrics that clients report
        #: steps whose reward may still change
        self.pending = PendingSteps(settings.max_amend_s, sum(leaf.nbytes for leaf in pool.obs_spec.leaves), self.put)
        self.refused = self.errors = self.requests = self.refused_values = 0  #: counters
        self._loop = loop
        #: num_sessions: number of open sessions; a connection counts as one before it has any
        #: num_active: sessions that ask for actions
        #: num_waiting: number of sessions that wait for an action
        self.num_sessions = self.num_active = self.num_waiting = 0
        self._answers = RateMeter("rlx/answers_per_s", window_s=_WINDOW_S)
        self._waits = RateMeter("rlx/waiting_sessions_count", window_s=_WINDOW_S)  # seconds of waiting in a second
        self._noted_s = time.monotonic()
        self._staged: list[Event] = []
        self._seen = self._turns = 0
        self._free: list[int] = []
        self._next_slot = 0
        pool.bind(self.on_actions, self.on_released)

    # -- connections -------------------------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """Whether one more connection may be opened; a refusal is counted.

        Sockets that say nothing must not keep clients out, so the oldest stranger gives way to a newcomer where there
        are too many of them, or no files, sessions or memory are left.
        """
        if len(self.strangers) >= self._max_strangers or len(self.connections) >= self._max_connections:
            self._dismiss_stranger()
        has_room = len(self.connections) < self._max_connections
        if has_room and (self._is_admitted() or (self._dismiss_stranger() and self._is_admitted())):
            return True
        self.refused += 1
        return False

    def add(self, connection: Connection) -> None:
        """Count a connection that was admitted, with the session that it may have."""
        self.connections.add(connection)
        self.strangers[connection] = None
        self.num_sessions += 1

    def discard(self, connection: Connection) -> None:
        """Stop counting a connection; may be called twice."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.strangers.pop(connection, None)
            self.num_sessions -= 1

    def _dismiss_stranger(self) -> bool:
        oldest = next(iter(self.strangers), None)
        if oldest is None:
            return False
        self.refused += 1
        self.discard(oldest)
        oldest.abort()
        return True

    def _is_admitted(self) -> bool:
        return self.settings.admission.admits(self.num_sessions, self.buffered_bytes)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def admits(self) -> bool:
        """Whether one more session may be opened; refusals are counted."""
        if self._is_admitted():
            return True
        self.refused += 1
        return False

    def buffered_bytes(self) -> int:
        """Count the bytes of all connections' messages in flight, in both directions."""
        return sum(connection.buffered_bytes() for connection in self.connections)

    def take_slot(self) -> int:
        """Assign the smallest free slot to a new session: agents keep arrays of slots.

        Slots that hold back steps of an earlier session are left out, unless there are many: its steps would wait too.
        """
        free = self._free
        if self.pending.slots and len(free) < _MAX_HELD_SLOTS:
            free = [slot for slot in free if not self.pending.holds(slot)]
        if free:
            slot = min(free)
            self._free.remove(slot)
            return slot
        self._next_slot += 1
        return self._next_slot - 1

    def put(self, event: Event) -> None:
        """Notify the pool soon, together with other requests that are arriving."""
        if not self._staged:
            self._loop.call_soon(self._hand_over)
        self._staged.append(event)

    def _hand_over(self) -> None:
        """Hand over when everyone waits, or when a turn of the event loop brought nothing new.

        Every hand-over may wake the agent's thread, and costs a change of threads: a row is too little for that.
        """
        count = len(self._staged)
        self._turns += 1
        if count > self._seen and self.num_waiting < self.num_active and self._turns < _MAX_TURNS:
            self._seen = count
            self._loop.call_soon(self._hand_over)
            return
        staged, self._staged = self._staged, []
        self._seen = self._turns = 0
        self._note_waits(arrived=len(staged))
        self.pool.put(staged)

    def _note_waits(self, arrived: int = 0) -> None:
        """Add up the waits of all sessions, `arrived` of which have only just begun to; once a batch, because reading
        the clock at each step would cost more.
        """
        now_s = time.monotonic()
        self._waits.add(max(0, self.num_waiting - arrived) * (now_s - self._noted_s))
        self._noted_s = now_s

    def _answer(self, actions: Sequence[tuple[Waiting, Any]]) -> None:
        self._note_waits()
        self._answers.add(len(actions))
        for session, action in actions:
            session.answer(action)

    # -- from the agent loop's thread --------------------------------------------------------------------------------

    def on_actions(self, actions: Sequence[tuple[Waiting, Any]]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: so are the sessions
            self._loop.call_soon_threadsafe(self._answer, actions)

    def on_released(self, slots: Sequence[int]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._free.extend, slots)

    # -- time --------------------------------------------------------------------------------------------------------

    def is_due(self, connection: Connection) -> bool:
        timeout_s = self.settings.timeout_s
        return timeout_s is not None and time.monotonic() - connection.opened_s >= timeout_s

    def sweep(self) -> None:
        """Close connections that have been silent for too long or lost their token; record the memory of the others."""
        self._note_waits()
        self.settings.admission.note_buffered(self.buffered_bytes())
        self.pending.sweep()
        if self.settings.tokens is not None:
            self.errors += self.settings.tokens.refresh()
        now, idle_s = time.monotonic(), self.settings.idle_timeout_s
        for stranger in [each for each in self.strangers if now - each.opened_s > FIRST_REQUEST_S]:
            stranger.abort()
        if idle_s is None:
            return
        for connection in list(self.connections):
            if not connection.is_busy and now - connection.heard_s > idle_s:
                connection.abort()

    def status(self) -> dict[str, Any]:
        source = self.settings.status
        return {"sessions": self.num_sessions, **({} if source is None else source())}

    def metrics(self) -> dict[str, float]:
        return {
            "rlx/connections_count": float(len(self.connections)),
            "rlx/requests_total": float(self.requests),
            "rlx/refused_total": float(self.refused),
            "rlx/errors_total": float(self.errors),
            "rlx/refused_values_total": float(self.refused_values),
            "rlx/dropped_metrics_total": float(self.metric_budget.dropped),
            "rlx/session_bytes": self.settings.admission.session_bytes,
            **({} if self.settings.tokens is None else self.settings.tokens.metrics()),
            **self.pending.metrics(),
            **self._answers.metrics(),
            **self._waits.metrics(),
        }


def free_files() -> int:
    """Count the connections that the limit of open files leaves to a server, at least 1."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, limit - psutil.Process().num_fds() - _RESERVED_FILES)
