"""`RemoteServer`: what an agent has of the process that answers: its methods, by name."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from surreal.base.errors import CallError, StoppedError
from surreal.distributed.calls.message import decode, encode
from surreal.distributed.connection.client import RedisClient

#: Most requests that may wait for a server.
MAX_WAITING = 1000
#: Of one BLPOP, which takes "0.000" for "without end".
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.5


class RemoteServer:
    """Calls methods of the run's learner or parameter server that are marked as `remote`.

        total = server.add_reward(1.5)
        total = server.call("add_reward", 1.5, timeout_s=2.0)

    A call is executed at most once. One that nobody answers in time may have been executed, or not; afterwards it never
    will be.

    Args:
        client: of the run.
        policy: whose server it is.
        timeout_s: how long to wait for an answer, s, > 0.
        stop: ends the waiting.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        policy: str = "default",
        timeout_s: float = 10.0,
        stop: threading.Event | None = None,
    ) -> None:
        if timeout_s <= 0.0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be > 0")
        self._client = client
        self._keys = client.policy_keys(policy)
        self._timeout_s = timeout_s
        self._stop = threading.Event() if stop is None else stop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self.call(name, *args, **options)

    def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        """Call a method, and wait for what it returns.

        Args:
            method: its name.
            args: see `surreal.distributed.calls.message` for what can be given and returned.
            timeout_s: how long to wait, s; None: as the constructor says.
            options: by name.

        Raises:
            CallError: there is no such method, it does not take these arguments, it failed, nobody answered in time, or
                too many requests wait.
            RedisUnavailableError: Redis did not answer.
            StoppedError: `stop` was set while waiting.
            TypeError: something that is not transported is among the arguments.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + limit_s
        number = uuid.uuid4().hex
        request = encode([method, list(args), options])
        arguments = (number, request, int(limit_s * 1e3), MAX_WAITING)
        keys = [self._keys.calls, self._keys.asked(number)]
        is_asked = self._client.retry(
            lambda: self._client.run_script("call", keys, arguments),
            what=f"call {method}",
            stop=self._stop,
            timeout_s=limit_s,
        )
        if not is_asked:
            raise CallError(f"{method} is not called: {MAX_WAITING} requests wait for the server already")
        answer = self._wait(method, number, deadline_s, limit_s)
        is_good, value = decode(answer)
        if not is_good:
            raise CallError(str(value))
        return value

    def _wait(self, method: str, number: str, deadline_s: float, limit_s: float) -> bytes:
        key = self._keys.answer(number)
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            wait_s = min(max(left_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
            found = self._client.attempt(lambda: self._client.execute("BLPOP", key, f"{wait_s:.3f}"), what="an answer")  # noqa: B023
            if found:
                return bytes(found[1])
            if self._client.is_away:
                self._stop.wait(min(left_s, 0.05))
            if self._stop.is_set():
                raise StoppedError(f"stopped while waiting for the answer of {method}")
        raise CallError(f"{method} was not answered within {limit_s:g} s: is there a learner or parameter server?")
