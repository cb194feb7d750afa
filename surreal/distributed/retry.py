"""Which Redis errors are worth another try, and how long to wait before it. No I/O; used by `Patience`.

redis-py's own retries are switched off: they repeat commands that are not idempotent, cannot be stopped, and hold a
thread for up to a minute. Ours stop with their owner, are bounded in time, and are logged.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator

from redis import exceptions

_TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
    exceptions.AskError,  # MovedError is one: a slot of a cluster is elsewhere now
)
_REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
#: Errors that some servers, or `redis.call` in a script of Redis 6.2, wrap into a plain ResponseError.
_TRANSIENT_CODES = ("BUSY ", "-READONLY ", "-LOADING ", "-MASTERDOWN ", "-CLUSTERDOWN ", "-MOVED ", "-ASK ")

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 2.0


def is_refused(error: BaseException) -> bool:
    """Whether Redis was reached and said no, for good: password, permission or certificate."""
    return isinstance(error, _REFUSED) or any(isinstance(cause, ssl.SSLError) for cause in _chain(error))


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: Redis is away, restarting, loading, or failing over."""
    if is_refused(error):
        return False
    if isinstance(error, _TRANSIENT):
        return True
    return isinstance(error, exceptions.ResponseError) and any(code in str(error) for code in _TRANSIENT_CODES)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Redis refused a write because it is at `maxmemory`."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return True
    # Redis 6.2 wraps what a script's redis.call raised: "ERR Error running script ... -OOM command not allowed ...".
    return isinstance(error, exceptions.ResponseError) and "-OOM " in str(error)


def delays_s(rng: random.Random) -> Iterator[float]:
    """Yield waiting times for ever: 50 ms doubling up to 2 s, each jittered down to half at most."""
    delay = FIRST_DELAY_S
    while True:
        yield delay * rng.uniform(0.5, 1.0)
        delay = min(2 * delay, MAX_DELAY_S)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from: redis-py wraps socket and TLS errors."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
