"""Ages: how long ago chunks came, by the clocks of the servers that have them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.storage import StoredChunk

#: How often a server is asked for its time: between, clocks that are set and machines that sleep are noticed late.
_ASK_INTERVAL_S = 60.0


class Ages:
    """Finds chunks that are too old; used by one thread.

    Args:
        streams: the shards of the chunks.
        max_age_s: bound of the time since a chunk was stored, s, > 0.

    Raises:
        ValueError: max_age_s is out of range.
    """

    def __init__(self, streams: Sequence[Stream], max_age_s: float) -> None:
        if max_age_s <= 0:
            raise ValueError(f"max_age_s is {max_age_s}; it must be > 0, or None")
        self._max_age_s = max_age_s
        self._streams = {stream.shard: stream for stream in streams}
        self._ahead_s: dict[int, float] = {}  # of each server's clock, before `time.monotonic`
        self._asked_s: dict[int, float] = {}

    def is_old(self, chunk: StoredChunk) -> bool:
        """Whether a chunk came too long ago, as far as its server's time is known."""
        now_s = time.monotonic()
        self._ask(chunk.shard, now_s)
        ahead_s = self._ahead_s.get(chunk.shard)
        milliseconds, _ = parse_entry_id(chunk.entry_id)
        return ahead_s is not None and now_s + ahead_s - milliseconds / 1000 > self._max_age_s

    def _ask(self, shard: int, now_s: float) -> None:
        stream = self._streams[shard]
        if stream.client.is_away or now_s - self._asked_s.get(shard, -_ASK_INTERVAL_S) < _ASK_INTERVAL_S:
            return
        self._asked_s[shard] = now_s
        server_s = stream.client.attempt(stream.server_time_s, what="tell its time")
        if server_s is not None:
            self._ahead_s[shard] = server_s - time.monotonic()
