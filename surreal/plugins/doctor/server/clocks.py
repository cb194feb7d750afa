"""This machine's clock against the server's, which is the one clock that all processes of a run share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.server.faults import CLOCK, SOME_CLOCK

SKEW_S, SOME_SKEW_S = 5.0, 1.0
_TRIES = 5


def clock_of(client: RedisClient, *, clock: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Compare the clocks, by the quickest of some answers.

    Args:
        client: of the server.
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
