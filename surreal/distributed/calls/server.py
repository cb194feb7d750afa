"""`CallServer`: executes the methods of an object that other processes of the run call by name.

Only methods that are marked can be called:

    class MyLearner(A2CLearner):
        @remote
        def add_reward(self, reward: float) -> float:
            self.total += reward
            return self.total
"""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from surreal.base.errors import CodecError
from surreal.distributed.calls.message import decode, encode
from surreal.distributed.connection.client import RedisClient

logger = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

_MARK = "__surreal_remote__"
_AT_ONCE = 16
#: How long an answer waits for its caller, ms.
_ANSWER_MS = 60_000


def remote(method: Method) -> Method:
    """Let other processes of the run call a method by its name; arguments are compared with its annotations."""
    setattr(method, _MARK, True)
    return method


def remote_methods(target: object) -> dict[str, Callable[..., Any]]:
    """Give the marked methods of an object by name; a subclass that overrides one has it marked as well.

    Args:
        target: the object; or methods by name, which are returned.
    """
    if isinstance(target, Mapping):
        return dict(target)
    names = {
        name
        for base in type(target).__mro__
        for name, member in vars(base).items()
        if getattr(member, _MARK, False) and not name.startswith("_")
    }
    return {name: getattr(target, name) for name in sorted(names)}


class CallServer:
    """Answers the calls of a policy's agents, one after another, on the thread that asks it to.

    A request is taken out before it is executed, so none is executed twice; one whose caller has given up is dropped.

    Args:
        client: of the run.
        target: whose marked methods can be called; or methods by name.
        policy: the name that callers know it by.
    """

    def __init__(self, client: RedisClient, target: object, *, policy: str = "default") -> None:
        self._client = client
        self._methods = remote_methods(target)
        self._keys = client.policy_keys(policy)
        self._answered = self._failed = self._expired = 0

    def __bool__(self) -> bool:
        return bool(self._methods)

    def serve(self) -> int:
        """Answer what waits, without waiting; returns how many requests there were. Redis may be away."""
        entries = self._client.attempt(self._read, what="read calls") if self._methods else None
        for entry, fields in entries or ():
            # Taken out first: whatever happens now, it is not executed again.
            if self._client.attempt(lambda: self._client.execute("XDEL", self._keys.calls, entry), what="take a call"):  # noqa: B023
                self._answer(entry, fields)
        return len(entries or ())

    def metrics(self) -> dict[str, float]:
        """Requests that were answered, that failed, and whose callers had given up; from any thread."""
        return {
            "calls/answered_total": float(self._answered),
            "calls/failed_total": float(self._failed),
            "calls/expired_total": float(self._expired),
        }

    def _read(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        streams: Any = {self._keys.calls: "0"}
        reply: Any = self._client.redis.xread(streams, count=_AT_ONCE)
        return list(reply[0][1]) if reply else []

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


def execute(methods: Mapping[str, Callable[..., Any]], name: str, args: Any, options: Any) -> Any:
    """Call one of the marked methods as another process asks for it.

    Raises:
        TypeError: no method has this name, or it does not take these arguments.
    """
    method = methods.get(name)
    if method is None:
        raise TypeError(f"there is no remote method {name!r}; there are: {', '.join(methods)}")
    _check(method, args, options)
    return method(*args, **options)


def _check(method: Callable[..., Any], args: Any, options: Any) -> None:
    """Compare arguments with a method's signature and annotations.

    Raises:
        TypeError: they do not fit.
    """
    bound = inspect.signature(method).bind(*args, **options)
    hints = typing.get_type_hints(method)
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if name in hints and kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            wanted = hints[name]
            if not _fits(value, wanted):
                raise TypeError(f"{name} is a {type(value).__name__}; it must be {getattr(wanted, '__name__', wanted)}")


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
    if plain is tuple:  # which travels as a list
        return isinstance(value, list)
    return isinstance(value, plain)
