"""Redis errors: which are worth another try, the policy that tries again, and clear errors for keys that others broke.

redis-py's own retries are switched off: they repeat commands that are not idempotent, cannot be stopped, and block a
thread for up to a minute. These retries stop with their owner, are bounded in time, and are logged.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from redis import exceptions
from redis.exceptions import NoScriptError, RedisError, ResponseError

from surreal.base.errors import RedisUnavailableError, StoppedError, SurrealError
from surreal.base.system.logs import WAITS

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
    exceptions.AskError,  # MovedError is one: a hash slot of a cluster is elsewhere now
)
_REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
#: TLS errors of a server that has hung up, as one does that ends while a handshake is under way.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
#: Errors without a class in redis-py, or which a pipeline or a script of Redis 6.2 ("-READONLY") wraps in another.
_TRANSIENT_CODES = re.compile(
    r"(?:^|-|error: )(?:BUSY|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|MOVED|ASK|TRYAGAIN|UNBLOCKED|MISCONF|NOREPLICAS) "
)
#: The last one: a script of Surreal failed in Lua. If `redis.call` refused a command, the text has "@user_script:".
_SPOILED = re.compile(r"WRONGTYPE|is not an integer|is not a valid float|would overflow|(?<!@)\buser_script:")
_SPOILED_ADVICE = "another client writes there; `surreal stop RUN --delete` removes the run"

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 2.0


class SpoiledKeyError(SurrealError, ResponseError):
    """A key of the run has content that Surreal never writes."""


class RetryPolicy:
    """Calls operations on one Redis until it answers; a refusal's error ends with `advice`. Thread-safe."""

    def __init__(self, address: str, advice: str = "check user, password, certificates") -> None:
        self._address = address
        self._advice = advice
        self._rng = random.Random()
        self._lock = threading.Lock()
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether no server answered the last call of any thread."""
        return self._away_since is not None

    def call(self, operation: Callable[[], T], *, what: str, stop: threading.Event | None, timeout_s: float) -> T:
        deadline = time.monotonic() + timeout_s
        delays: Iterator[float] | None = None  # made at the first failure
        wait = (self, threading.get_ident())
        try:
            while True:
                try:
                    result = operation()
                except RedisError as error:
                    if is_refused(error):
                        problem = f"refused to {what}: {error}; {self._advice}"
                        message = f"Redis at {self._address} {problem}"
                        raise RedisUnavailableError(message, address=self._address) from error
                    if not is_transient(error):
                        raise
                    self._note_failure(error, what)
                    WAITS.note(wait, f"waiting for Redis at {self._address}, to {what}")
                    delays = delays or delays_s(self._rng)
                    delay = next(delays)
                    if time.monotonic() + delay > deadline:
                        raise self._gave_up(error, what, timeout_s) from error
                    pause(stop, delay, f"stopped while waiting for Redis at {self._address} to {what}")
                else:
                    if self._away_since is not None:
                        self._note_recovery()
                    return result
        finally:
            if delays is not None:
                WAITS.end(wait)

    def _gave_up(self, error: RedisError, what: str, timeout_s: float) -> RedisUnavailableError:
        if isinstance(error, ResponseError):
            problem = f"refused to {what} for {timeout_s:g} s: {error}"
        else:
            problem = f"did not answer in time to {what}: {error}; is it running there?"
        return RedisUnavailableError(f"Redis at {self._address} {problem}", address=self._address)

    def _note_failure(self, error: RedisError, what: str) -> None:
        with self._lock:
            is_first = self._away_since is None
            if is_first:
                self._away_since = time.monotonic()
        level = logging.WARNING if is_first else logging.DEBUG
        logger.log(level, "Redis at %s: %s; trying again to %s", self._address, error, what)

    def _note_recovery(self) -> None:
        with self._lock:
            away_since, self._away_since = self._away_since, None
        if away_since is not None:
            logger.info("Redis at %s answers again after %.1f s", self._address, time.monotonic() - away_since)


def is_refused(error: BaseException) -> bool:
    """Whether Redis refuses this process permanently: password, permission or certificate."""
    causes = [cause for cause in _chain(error) if isinstance(cause, ssl.SSLError)]
    return isinstance(error, _REFUSED) or any(not isinstance(cause, _HUNG_UP) for cause in causes)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: Redis is away, loading, failing over, or refuses writes for a while."""
    if is_refused(error) or isinstance(error, exceptions.MaxConnectionsError):  # the latter is this process's own limit
        return False
    if isinstance(error, _TRANSIENT):
        return True
    return isinstance(error, ResponseError) and _TRANSIENT_CODES.search(str(error)) is not None


def is_demoted(error: BaseException) -> bool:
    """Whether the server is a replica now: the address may already lead to another one."""
    if isinstance(error, (exceptions.ReadOnlyError, exceptions.MasterDownError)):
        return True
    text = str(error)
    # A blocking read ends with the second when the server becomes a replica.
    return isinstance(error, ResponseError) and ("-READONLY " in text or text.startswith("UNBLOCKED "))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Redis refused a write because it is at `maxmemory`."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return True
    # Redis 6.2 wraps an error of a script's redis.call: "ERR Error running script ... -OOM command not allowed ...".
    return isinstance(error, ResponseError) and "-OOM " in str(error)


def delays_s(rng: random.Random, first_s: float = FIRST_DELAY_S, longest_s: float = MAX_DELAY_S) -> Iterator[float]:
    """Yield delays forever: doubling from the first to the longest, each reduced by a random factor down to 0.5."""
    delay = first_s
    while True:
        yield delay * rng.uniform(0.5, 1.0)
        delay = min(2 * delay, longest_s)


def pause(stop: threading.Event | None, seconds: float, message: str) -> None:
    """Wait; raise `StoppedError` with the message when `stop` is set."""
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise StoppedError(message)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes: redis-py wraps socket and TLS errors."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def clear_error(error: ResponseError) -> ResponseError:
    """Return the error itself, or a clearer one if Redis is full, or a key is not as Surreal writes it."""
    text = str(error)
    if is_out_of_memory(error):
        return error if isinstance(error, exceptions.OutOfMemoryError) else exceptions.OutOfMemoryError(text)
    is_plain = type(error) is ResponseError and not isinstance(error, NoScriptError)
    if not is_plain or not _SPOILED.search(text):
        return error
    return SpoiledKeyError(
        f"a key of the run in Redis holds what Surreal never writes ({text[:200]}): {_SPOILED_ADVICE}"
    )


def number_of(value: bytes | int | None) -> int:
    """Parse a number from Redis; 0 for None. Raises `SpoiledKeyError` if it is not a number."""
    try:
        return int(value or 0)
    except ValueError:
        raise SpoiledKeyError(
            f"a key of the run in Redis holds {str(value)[:40]} where a number belongs: {_SPOILED_ADVICE}"
        ) from None


def text_of(value: bytes | None) -> str:
    """Decode a text from Redis; "" for None."""
    return (value or b"").decode(errors="replace")


def parse_entry_id(entry_id: bytes) -> tuple[int, int]:
    """Return the server's clock in ms when an entry of a stream was stored, and its number in that millisecond."""
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number or 0)
