"""Methods that one process of a run calls by name in another, through Redis.

Only methods that are marked can be called:

    class MyLearner(A2CLearner):
        @remote
        def add_reward(self, reward: float) -> float:
            self.total += reward
            return self.total

`surreal.distributed.connection.call_values` lists the possible values. Nothing in a call is code.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from surreal.base.errors import CallError, CodecError, StoppedError
from surreal.base.ranges import Positive, checked
from surreal.distributed.connection.call_values import decode, encode
from surreal.distributed.connection.client import RedisClient

logger = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

#: Most requests that may wait for a server.
MAX_WAITING = 1000
_REMOTE_MARK = "__surreal_remote__"
_READ_AT_ONCE = 16
#: Lifetime of an answer, ms.
_ANSWER_MS = 60_000
#: Timeouts of one BLPOP, s; it takes "0.000" for "without end".
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.5


def remote(method: Method) -> Method:
    """Allow other processes of the run to call a method by its name; arguments are checked against its annotations."""
    setattr(method, _REMOTE_MARK, True)
    return method


def remote_methods(target: object) -> dict[str, Callable[..., Any]]:
    """Return the marked methods of an object by name, overrides in subclasses too; methods by name are returned."""
    if isinstance(target, Mapping):
        return dict(target)
    names = {
        name
        for base in type(target).__mro__
        for name, member in vars(base).items()
        if getattr(member, _REMOTE_MARK, False) and not name.startswith("_")
    }
    return {name: getattr(target, name) for name in sorted(names)}


class CallServer:
    """Answers the calls of a policy's agents, one after another, on the thread that calls `serve`.

    A request is removed before it is executed, so none is executed twice. A request whose caller has given up is
    dropped.

    Args:
        target: object with marked methods; or methods by name.
        policy: name by which callers know it.
    """

    def __init__(self, client: RedisClient, target: object, *, policy: str = "default") -> None:
        self._client = client
        self._methods = remote_methods(target)
        self._keys = client.policy_keys(policy)
        self._answered = self._failed = self._expired = 0

    def __bool__(self) -> bool:
        return bool(self._methods)

    def serve(self) -> int:
        """Answer the waiting requests; return how many there were. Does not wait, also if Redis is away."""
        if not self._methods:
            return 0
        read = partial(self._client.read_stream, self._keys.calls, "0", _READ_AT_ONCE)
        entries = self._client.attempt(read, what="read calls")
        for entry, fields in entries or ():
            # Removed first, so that it is never executed again.
            if self._client.attempt(lambda: self._client.execute("XDEL", self._keys.calls, entry), what="take a call"):  # noqa: B023
                self._answer(entry, fields)
        return len(entries or ())

    def metrics(self) -> dict[str, float]:
        """Return the numbers of requests that were answered, failed, and expired. Thread-safe."""
        return {
            "calls/answered_total": float(self._answered),
            "calls/failed_total": float(self._failed),
            "calls/expired_total": float(self._expired),
        }

    def _answer(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        try:
            asked_ms, timeout_ms = int(entry.split(b"-")[0]), int(fields[b"timeout_ms"])
            number = fields[b"id"].decode("ascii")
            is_late = self._client.server_time_s() * 1e3 > asked_ms + timeout_ms
            method, args, options = decode(fields[b"request"])
            name = str(method)
        except (KeyError, ValueError, TypeError, CodecError) as error:
            self._failed += 1
            logger.warning("a call is refused: %s", error)
            return
        if is_late:
            self._expired += 1
            return
        answer = self._execute(name, args, options)
        key = self._keys.answer(number)

        def send() -> None:
            self._client.execute("RPUSH", key, answer)
            self._client.execute("PEXPIRE", key, _ANSWER_MS)

        self._client.attempt(send, what=f"answer {name}")

    def _execute(self, name: str, args: Any, options: Any) -> bytes:
        try:
            data = encode([True, execute(self._methods, name, args, options)])
        except Exception as error:  # a user's method, for a caller in another process
            self._failed += 1
            logger.warning("%s failed for a caller: %r", name, error)
            return encode([False, f"{name}: {type(error).__name__}: {error}"])
        self._answered += 1
        return data


class RemoteServer:
    """Calls marked methods of the run's learner or parameter server.

        total = server.add_reward(1.5)
        total = server.call("add_reward", 1.5, timeout_s=2.0)

    A call is executed at most once. A call without an answer in time may have been executed; if not, it never will be.

    Args:
        policy: the server's policy.
        timeout_s: how long to wait for an answer, s.
        stop: ends the wait.
    """

    @checked
    def __init__(
        self,
        client: RedisClient,
        *,
        policy: str = "default",
        timeout_s: Positive = 10.0,
        stop: threading.Event | None = None,
    ) -> None:
        self._client = client
        self._keys = client.policy_keys(policy)
        self._timeout_s = timeout_s
        self._stop = threading.Event() if stop is None else stop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self.call(name, *args, **options)

    def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        """Call a method, and wait for its result.

        Args:
            method: its name.
            args: see `call_values` for possible values.
            timeout_s: how long to wait, s; None: the constructor's.
            options: arguments by name.

        Raises:
            CallError: there is no such method, it does not take these arguments, it failed, it was not answered in
                time, or too many requests wait.
            RedisUnavailableError: Redis did not answer.
            StoppedError: `stop` was set while waiting.
            TypeError: an argument cannot be transported.
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
        is_good, value = decode(self._wait(method, number, deadline_s, limit_s))
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


class LocalServer(RemoteServer):
    """Calls the marked methods of an object in this process, with the values that another process would get.

    Used in the check before a run; the target may also be methods by name.
    """

    def __init__(self, target: object) -> None:
        self._methods = remote_methods(target)

    def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        """Call a method; raises `TypeError` if it does not exist, or not with these arguments and kinds of values."""
        name, values, named = decode(encode([method, list(args), options]))
        return decode(encode(execute(self._methods, name, values, named)))


def execute(methods: Mapping[str, Callable[..., Any]], name: str, args: Any, options: Any) -> Any:
    """Call a marked method for another process; raises `TypeError` for unknown names and arguments."""
    method = methods.get(name)
    if method is None:
        raise TypeError(f"there is no remote method {name!r}; there are: {', '.join(methods)}")
    bound = inspect.signature(method).bind(*args, **options)
    hints = typing.get_type_hints(method)
    for argument, value in bound.arguments.items():
        kind = bound.signature.parameters[argument].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        wanted = hints.get(argument, Any)
        if not _fits(value, wanted):
            raise TypeError(f"{argument} is a {type(value).__name__}; it must be {getattr(wanted, '__name__', wanted)}")
    return method(*args, **options)


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is Any:
        return True
    if wanted is None:
        return value is None
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in typing.get_args(wanted))
    if origin is typing.Literal:
        return value in typing.get_args(wanted)
    plain = wanted if origin is None else origin
    if not isinstance(plain, type):
        return True
    if isinstance(value, bool) and plain in (int, float):
        return False
    if plain is float:
        return isinstance(value, int | float)
    return isinstance(value, list if plain is tuple else plain)  # a tuple travels as a list
