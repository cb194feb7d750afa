"""Shares the server's thread among connections that want more of it than one turn.

A request that the server answers by itself (`reset`, metrics, errors, pings) costs its sender nothing, so a single
client can send such requests faster than the thread can answer them. Each connection therefore does so much at a time,
and what is left over waits here. The connections in the queue take turns, and after each turn the thread is left to the
others for some time, in which it mostly sleeps: the agent's thread needs the interpreter too.

Connections without a session share one account, which also inherits what a lost connection owes: a client gains nothing
by connecting again. Steps are not counted, because a client that waits for an action is slowed down by that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

#: Pieces of work (requests, frames of a WebSocket) that a connection does at a time; more makes floods cheaper to
#: answer, and everyone else wait longer.
TURN_REQUESTS = 32
#: Time after which a turn ends, s.
TURN_S = 0.00025
#: Time that is left to others after a turn, as a multiple of its own.
_REST = 2.0
#: Rest that a connection may owe before it has to queue, s: what usual clients do now and then is done at once.
_ALLOWANCE_S = 0.002


class Queued(Protocol):
    """What is needed of a connection."""

    def take_turn(self) -> None:
        """Do as much as fits into a turn, and queue again if more is left."""


class Account:
    """What one connection owes for the time it had."""

    __slots__ = ("_rested_s",)

    def __init__(self) -> None:
        self._rested_s = 0.0  # when it will have rested enough

    def charge(self, spent_s: float, now_s: float) -> bool:
        """Note that it had so much time until now; returns whether it owes too much rest."""
        self._rested_s = max(self._rested_s, now_s - spent_s) + (1 + _REST) * spent_s
        return self.owes(now_s)

    def owes(self, now_s: float) -> bool:
        """Whether it owes too much rest."""
        return self.wait_s(now_s) > 0

    def wait_s(self, now_s: float) -> float:
        """Give the time until it owes no more than it may, s."""
        return max(0.0, self._rested_s - now_s - _ALLOWANCE_S)

    def inherit(self, other: Account, now_s: float) -> None:
        """Take over what another one still owes."""
        self._rested_s = max(self._rested_s, now_s) + max(0.0, other._rested_s - now_s)


class Turns:
    """The queue of one server, on the event loop's thread.

    Args:
        loop: of the server's thread.
        clock: seconds, monotonic.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._loop = loop
        self._queue: deque[Queued] = deque()
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, connection: Queued) -> None:
        """Queue a connection that is not in the queue."""
        self._queue.append(connection)
        self._wait()

    def charge(self, spent_s: float) -> None:
        """Note that so much time was spent on connections of the queue: the next turn comes later."""
        self._next_s = max(self._next_s, self.clock()) + _REST * spent_s

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(0.0, self._next_s - self.clock()), self._give_turn)

    def _give_turn(self) -> None:
        self._timer = None
        if self.clock() >= self._next_s:
            self._queue.popleft().take_turn()
        if self._queue:
            self._wait()
