"""How far away Redis is: what a round trip takes, and how much goes through in a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.frame.finding import Finding, milliseconds, ok
from surreal.plugins.doctor.server.faults import LATENCY, SOME_LATENCY

_SLOW_S, _SOMEWHAT_SLOW_S = 0.020, 0.003
_PAYLOAD = b"\0" * (1 << 20)


def latency(
    client: RedisClient, *, tries: int = 50, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """Measure round trips; nothing is written.

    Args:
        client: of the server.
        tries: how many; the middle one counts.
        clock: seconds, monotonic.
    """

    def measure(*command: str | bytes) -> float:
        began_s = clock()
        client.execute(*command)
        return clock() - began_s

    measure("PING")  # connects
    trips = sorted(measure("PING") for _ in range(tries))
    middle, slow = trips[tries // 2], trips[-1 - tries // 20]
    said = f"a round trip takes {milliseconds(middle)}, the slowest {milliseconds(slow)}"
    with suppress(RedisError):  # a limit of the server, which `health.limits` tells of
        there_and_back_s = min(measure("ECHO", _PAYLOAD) for _ in range(3))
        said += f"; {2 * len(_PAYLOAD) / max(there_and_back_s, 1e-9) / 2**20:,.0f} MiB/s go through"
    if middle > _SLOW_S:
        yield LATENCY.found(said)
    elif middle > _SOMEWHAT_SLOW_S:
        yield SOME_LATENCY.found(said)
    else:
        yield ok(said)
