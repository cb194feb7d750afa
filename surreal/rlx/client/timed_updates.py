"""`TimedUpdates`: the updates of an `AgentProxy` that keeps time (`rate_hz`): a robot never waits for a network.

A background thread exchanges messages. `update` returns at the deadline, whatever happens to its request:

    the reply is there           the agent's action
    it is late                   the safe action, and `failure` tells why; the next request begins a new episode,
                                 because the agent did not choose what happened in between
    the connection is lost       the same until the thread has connected again
    it is paused                 the safe action, once, and again when it is resumed

Needs neither torch nor Redis.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from surreal.base.system.deadlines import Deadlines
from surreal.base.types import EXECUTED_ACTION
from surreal.rlx.client.connection import AgentProxyConnectionError
from surreal.rlx.protocol.errors import RlxError

logger = logging.getLogger(__name__)

#: Keys of an update that belong to a step, which an update that begins an episode does not complete.
_OF_A_STEP = (EXECUTED_ACTION, "amend_within_s")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_MAX_WAIT_S = 0.5
_JOIN_TIMEOUT_S = 2.0


class Exchange(Protocol):
    """A connection to a server, as it is used here; all methods raise `RlxError`."""

    @property
    def is_connected(self) -> bool:
        """Whether requests can be exchanged, as far as is known."""

    def encode(self, request: Mapping[str, Any]) -> bytes:
        """Return the bytes of a request."""

    def exchange(self, payload: bytes) -> dict[str, Any]:
        """Send a request and return its reply."""

    def begin_again(self) -> None:
        """Connect and begin a session, in one attempt."""

    def close(self) -> None:
        """Close it; ends an exchange of another thread."""


class TimedUpdates:
    """See the module; in place of a late action comes `safe_action`, "last" the one before, None an error."""

    def __init__(self, connection: Exchange, rate_hz: float, safe_action: Any) -> None:
        self.deadlines = Deadlines(rate_hz)  #: what was missed, and the latencies
        self.failure: RlxError | None = None  #: why the last action was the safe one; None if it was the agent's
        self._connection, self._wait = connection, time.sleep
        self._safe_action, self._last = safe_action, None if safe_action == "last" else safe_action
        self._stop = threading.Event()
        self._is_running = threading.Event()  # whether it is not paused
        self._is_running.set()
        self._rests = False  # whether the safe action of a pause was returned
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # guards everything below
        self._payload: bytes | None = None  # the request that the thread works on
        self._reply: dict[str, Any] | RlxError = {}
        self._lost: RlxError | None = None  # why there is no connection
        self._is_behind = False  # whether the server misses what happened since its last request

    def update(self, request: dict[str, Any]) -> dict[str, Any]:
        """Exchange a request until the deadline; returns the reply, or the safe action in one. Raises `RlxError`."""
        self._start()
        if not self._is_running.is_set():
            return self._rest(is_over=request["terminal"])
        self._rests = False
        if request["reward"] is None:
            self.deadlines.restart()
        elif self._is_behind:
            request = {key: value for key, value in request.items() if key not in _OF_A_STEP} | {"reward": None}
        if self.deadlines.left_s() <= 0.0:  # the environment itself took longer than a period
            self.deadlines.miss()
            self.deadlines.advance()
        payload = self._connection.encode(request)  # here, because environments reuse the memory of their states
        began_s = time.monotonic()
        reply: dict[str, Any] | RlxError | None = None
        with self._changed:
            if isinstance(self._reply, RlxError):
                error, self._reply = self._reply, {}
                raise error
            if self._payload is None:
                self._payload, self._is_behind = payload, False
                self._changed.notify_all()
                reply = self._await_reply(max(0.0, self.deadlines.left_s()))
            self._is_behind |= reply is None
            lost = self._lost
        if isinstance(reply, RlxError):
            raise reply
        if reply is not None:
            self.deadlines.add_latency(time.monotonic() - began_s)
        if not request["terminal"]:
            self._wait(max(0.0, self.deadlines.left_s()))
        self.deadlines.advance()
        return self._choose(reply, lost, is_over=request["terminal"])

    def pause(self) -> None:
        """Wait for `resume` after one safe action; from any thread."""
        self._is_running.clear()

    def resume(self) -> None:
        """End a pause; from any thread."""
        self._is_running.set()

    def stop(self) -> None:
        """End the thread and close the connection; the next update begins again."""
        self._stop.set()
        self._connection.close()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
            self._thread = None

    def _await_reply(self, timeout_s: float) -> dict[str, Any] | RlxError | None:
        """Wait for the reply until it comes, the connection is lost, or the time is over."""
        self._changed.wait_for(lambda: self._payload is None or self._lost is not None, timeout_s)
        if self._payload is not None:
            return None
        reply, self._reply = self._reply, {}
        return reply

    def _rest(self, *, is_over: bool) -> dict[str, Any]:
        """Return the safe action at the next deadline, or when the pause is over if it was returned already."""
        if self._rests:
            while not self._is_running.wait(_MAX_WAIT_S) and not self._stop.is_set():
                pass
            self.deadlines.restart()
        else:
            if not is_over:
                self._wait(max(0.0, self.deadlines.left_s()))
            self.deadlines.advance()
        self._rests = not self._is_running.is_set()
        with self._changed:
            self._is_behind = True
        return self._take_safe(AgentProxyConnectionError("paused"), is_over=is_over)

    def _choose(self, reply: dict[str, Any] | None, lost: RlxError | None, *, is_over: bool) -> dict[str, Any]:
        if reply is not None:
            self.failure = None
            if self._safe_action == "last" and not is_over:
                self._last = reply.get("data")
            return reply
        self.deadlines.miss()
        late = lost or AgentProxyConnectionError(f"no action came within {1e3 * self.deadlines.period_s:g} ms")
        return self._take_safe(late, is_over=is_over)

    def _take_safe(self, failure: RlxError, *, is_over: bool) -> dict[str, Any]:
        self.failure = failure
        if self._last is None and not is_over:
            raise self.failure
        return {"data": None if is_over else self._last}

    def _start(self) -> None:
        if self._thread is not None:
            return
        self._stop = stop = threading.Event()
        self._payload, self._reply, self._lost, self._is_behind = None, {}, None, False
        self.deadlines.restart()

        def run() -> None:
            while not stop.is_set():
                self._work(stop)

        self._thread = threading.Thread(target=run, name="rlx-client/updates", daemon=True)
        self._thread.start()

    def _work(self, stop: threading.Event) -> None:
        """Wait for a request and exchange it, or connect again."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._payload is not None, _MAX_WAIT_S):
                return
            payload = self._payload or b""
        reply: dict[str, Any] | RlxError
        try:
            reply = self._connection.exchange(payload)
        except RlxError as error:
            reply = error
            if not self._connection.is_connected:
                reply = {}
                self._connect_again(error, stop)
        with self._changed:
            self._payload, self._reply, self._lost = None, reply, None
            self._changed.notify_all()

    def _connect_again(self, error: RlxError, stop: threading.Event) -> None:
        """Connect, with jittered waits that double, until it works or `stop` is set."""
        wait_s = _FIRST_WAIT_S
        logger.warning("%s; connecting again", error)
        while not stop.is_set():
            with self._changed:
                self._lost = error
                self._changed.notify_all()  # `update` stops waiting for an answer
            try:
                self._connection.begin_again()
                logger.info("connected again")
                return
            except RlxError as again:
                error = again
            stop.wait(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
