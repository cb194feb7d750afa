"""The outbox of a sender whose run has several shards: while one does not answer, new chunks go to another one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from surreal.base.errors import RedisUnavailableError, ReplayFullError, StoppedError
from surreal.distributed.connection.retry import pause
from surreal.distributed.experience.codec import Contract, EncodedChunk
from surreal.distributed.experience.outbox import Outbox, Terms
from surreal.distributed.experience.shards import ReplayShards

logger = logging.getLogger(__name__)

#: How long a shard may not answer before new chunks go elsewhere, s.
AWAY_TIMEOUT_S = 2.0
_PAUSE_S = 0.2
_LAST_TRY_S = 1.0


def make_outbox(
    shards: ReplayShards, home: int, *, drops_when_full: bool, max_stream_bytes: int
) -> Outbox | ShardedOutbox:
    """Make an outbox for one or several shards; arguments as for `ShardedOutbox`."""
    if len(shards) > 1:
        return ShardedOutbox(shards, home, drops_when_full=drops_when_full, max_stream_bytes=max_stream_bytes)
    return Outbox(shards.stream(home), drops_when_full=drops_when_full, max_stream_bytes=max_stream_bytes)


class ShardedOutbox:
    """Stores chunks in one of several shards, with one `Outbox` for each; used like an `Outbox`.

    A sender uses its home shard. While that does not answer, new chunks go to another one. A chunk that was sent there
    stays, because it may be stored; it is sent again when the shard is back, under its old number.

    Args:
        drops_when_full, max_stream_bytes: as for `Outbox`.
    """

    def __init__(self, shards: ReplayShards, home: int, *, drops_when_full: bool, max_stream_bytes: int) -> None:
        make = partial(Outbox, drops_when_full=drops_when_full, max_stream_bytes=max_stream_bytes)
        self._boxes = [make(stream, away_timeout_s=AWAY_TIMEOUT_S) for stream in shards.streams()]
        self._home = shards.stream(home).shard
        self._current = self._home
        self._moves = 0
        self._watched: set[int] = set()
        self._are_back: deque[int] = deque()  # filled by the threads that watch
        self._has_ended = threading.Event()

    def put(self, contract: Contract, chunks: Sequence[EncodedChunk]) -> None:
        self._boxes[self._current].put(contract, chunks)

    def push(
        self, *, timeout_s: float, is_limited: bool, stop: threading.Event | None = None, waits_for_last: bool = True
    ) -> None:
        """Store all queued chunks, except those that wait for a shard to come back; raises as `Outbox.push`."""
        terms = Terms(timeout_s, is_limited, stop, time.monotonic() + timeout_s)
        if self._are_back:
            self._resume_returned(terms)
        while True:
            left_s = max(0.0, terms.deadline_s - time.monotonic())
            current = self._boxes[self._current]
            try:
                current.push(timeout_s=left_s, is_limited=is_limited, stop=stop, waits_for_last=waits_for_last)
                return
            except RedisUnavailableError:
                if time.monotonic() > terms.deadline_s:
                    raise
                self._change_shard(stop)

    @property
    def has_answer(self) -> bool:
        """Whether a push would not wait for the chunk in flight, or a shard is back."""
        return bool(self._are_back) or self._boxes[self._current].has_answer

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, at the last acknowledgment."""
        return max(box.global_step for box in self._boxes)

    @property
    def sent_through(self) -> tuple[str, int]:
        """Name of the sender, and number of the last acknowledged chunk, at the shard in use."""
        return self._boxes[self._current].sent_through

    def drop_all(self) -> None:
        self._has_ended.set()
        for box in self._boxes:
            box.drop_all()

    def close(self) -> None:
        """Try once more to send the chunks that wait for a shard, and drop the connections."""
        self._has_ended.set()
        for box in self._boxes:
            if len(box) and not box.stream.client.is_away:
                with suppress(RedisUnavailableError, ReplayFullError):
                    box.push(timeout_s=_LAST_TRY_S, is_limited=False)
            box.close()

    def metrics(self) -> dict[str, float]:
        """Return sums over all shards, the number of changes of the shard, and of chunks that wait for a shard."""
        parts = [box.metrics() for box in self._boxes]
        sums = {name: sum(part[name] for part in parts) for name in parts[0]}
        waiting = sum(len(box) for shard, box in enumerate(self._boxes) if shard != self._current)
        return sums | {"sender/shard_changes_total": self._moves, "sender/kept_chunks_count": waiting}

    def __len__(self) -> int:
        return sum(map(len, self._boxes))

    def _change_shard(self, stop: threading.Event | None) -> None:
        """Continue at the next shard that answers, with the chunks that were not sent; pause if none answers."""
        others = [(self._current + i) % len(self._boxes) for i in range(1, len(self._boxes))]
        found = next((shard for shard in others if self._boxes[shard].stream.client.ping()), None)
        self._watch(self._current)
        if found is None:
            pause(stop, _PAUSE_S, "the sender was stopped while no shard answered")
            return
        logger.warning("shard %d does not answer; experience goes to shard %d", self._current, found)
        self._go_to(found)

    def _go_to(self, shard: int) -> None:
        left, self._current = self._boxes[self._current], shard
        self._moves += 1
        for contract, chunk in left.take_untried():
            self._boxes[shard].put(contract, [chunk])

    def _watch(self, shard: int) -> None:
        if shard in self._watched:
            return
        self._watched.add(shard)
        client = self._boxes[shard].stream.client

        def watch() -> None:
            with suppress(StoppedError, RedisUnavailableError):
                client.retry(client.redis.ping, what="find a shard", stop=self._has_ended, timeout_s=math.inf)
                self._are_back.append(shard)

        threading.Thread(target=watch, name=f"sender/shard-{shard}", daemon=True).start()

    def _resume_returned(self, terms: Terms) -> None:
        """Store the chunks that waited for shards that are back, and return to the home shard if it is one of them."""
        for _ in range(len(self._are_back)):
            shard = self._are_back.popleft()
            self._watched.discard(shard)
            if shard == self._current:
                continue
            try:
                # The limiter is not asked: this chunk had its credit, or was stored already.
                self._boxes[shard].push(timeout_s=_LAST_TRY_S, is_limited=False, stop=terms.stop)
            except ReplayFullError:
                pass  # with the next chunks, if it is home; otherwise with the last
            except RedisUnavailableError:
                self._watch(shard)
                continue
            if shard == self._home:
                self._go_home(terms)

    def _go_home(self, terms: Terms) -> None:
        left = self._boxes[self._current]
        try:
            left.push(timeout_s=terms.timeout_s, is_limited=terms.is_limited, stop=terms.stop)
        except RedisUnavailableError:
            self._watch(self._current)
        except ReplayFullError:
            self._watch(self._home)  # return with a later push
            raise
        logger.info("shard %d answers again; experience goes there", self._home)
        self._go_to(self._home)
