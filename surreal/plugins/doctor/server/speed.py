"""Clock and speed of a Redis server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.frame.finding import Finding, milliseconds, ok
from surreal.plugins.doctor.server.faults import CLOCK, LATENCY, SOME_CLOCK, SOME_LATENCY

SKEW_S, SOME_SKEW_S = 5.0, 1.0
_TRIES = 5


def clock_of(client: RedisClient, *, clock: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Compare the clocks, by the quickest of some answers.

    Args:
        client: client of the server.
        clock: this machine's, s since 1970.
    """
    offsets = []
    for _ in range(_TRIES):
        before_s = clock()
        server_s = client.server_time_s()
        after_s = clock()
        offsets.append((after_s - before_s, (before_s + after_s) / 2 - server_s))
    trip_s, offset_s = min(offsets)
    # What the answer took cannot be told from an offset.
    certain_s = max(0.0, abs(offset_s) - trip_s)
    said = f"this machine is {abs(offset_s):.3g} s {'ahead of' if offset_s > 0 else 'behind'} Redis at {client.address}"
    if certain_s > SKEW_S:
        yield CLOCK.found(said)
    elif certain_s > SOME_SKEW_S:
        yield SOME_CLOCK.found(said)
    else:
        yield ok(f"this machine and Redis at {client.address} agree to {max(abs(offset_s), trip_s) * 1000:,.3g} ms")


_SLOW_S, _SOMEWHAT_SLOW_S = 0.020, 0.003
_PAYLOAD = b"\0" * (1 << 20)


def latency(
    client: RedisClient, *, tries: int = 50, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """Measure round trips; nothing is written.

    Args:
        client: client of the server.
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
