"""ShardedOutbox: a sender's way to several shards: one outbox each, of which one is in use.

A sender keeps to its home shard. While that does not answer, what is new goes to another one; a chunk that was tried
there stays, for nobody knows whether it was stored, and is tried again when the shard is back, under its old number.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from surreal.base.errors import RedisUnavailableError, ReplayFullError, StoppedError
from surreal.distributed.experience.format.codec import Contract, EncodedChunk
from surreal.distributed.experience.sending.outbox import Outbox
from surreal.distributed.experience.shards import ReplayShards

logger = logging.getLogger(__name__)

#: How long a shard may not answer before what is new goes elsewhere, s.
AWAY_TIMEOUT_S = 2.0
_PAUSE_S = 0.2
_LAST_TRY_S = 1.0


class ShardedOutbox:
    """Stores chunks in one of several shards; used as an `Outbox` is.

    Args:
        shards: of the run.
        home: number of the shard to keep to.
        drops_when_full, max_stream_bytes: as for `Outbox`.

    Raises:
        ValueError: there is no such shard.
    """

    def __init__(self, shards: ReplayShards, home: int, *, drops_when_full: bool, max_stream_bytes: int) -> None:
        self._boxes = [
            Outbox(
                stream,
                drops_when_full=drops_when_full,
                max_stream_bytes=max_stream_bytes,
                away_timeout_s=AWAY_TIMEOUT_S,
            )
            for stream in shards.streams()
        ]
        self._home = shards.stream(home).shard
        self._current = self._home
        self._moves = 0
        self._watched: set[int] = set()
        self._are_back: deque[int] = deque()  # filled by the threads that watch
        self._has_ended = threading.Event()

    def put(self, contract: Contract, chunks: Sequence[EncodedChunk]) -> None:
        """Queue chunks behind those that wait."""
        self._boxes[self._current].put(contract, chunks)

    def push(
        self, *, timeout_s: float, is_limited: bool, stop: threading.Event | None = None, waits_for_last: bool = True
    ) -> None:
        """Store everything that waits, but for what waits for a shard to come back.

        Raises:
            RedisUnavailableError: no shard answered for `timeout_s`.
            ReplayFullError, ContractError, StoppedError: as `Outbox.push`.
        """
        deadline_s = time.monotonic() + timeout_s
        if self._are_back:
            self._look_after_returned(timeout_s, is_limited, stop)
        while True:
            try:
                self._boxes[self._current].push(
                    timeout_s=max(0.0, deadline_s - time.monotonic()),
                    is_limited=is_limited,
                    stop=stop,
                    waits_for_last=waits_for_last,
                )
            except RedisUnavailableError:
                if time.monotonic() > deadline_s:
                    raise
                self._move(stop)
            else:
                return

    @property
    def has_answer(self) -> bool:
        """Whether a push would not wait for the chunk under way, or has something to do at a shard that is back."""
        return bool(self._are_back) or self._boxes[self._current].has_answer

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as the last acknowledgement told."""
        return max(box.global_step for box in self._boxes)

    @property
    def sender_id(self) -> str:
        """Name of the sender at the shard in use."""
        return self._boxes[self._current].sender_id

    @property
    def sent_through(self) -> int:
        """Number of the last chunk that was acknowledged at the shard in use."""
        return self._boxes[self._current].sent_through

    def drop_all(self) -> None:
        """Give up what waits, and count it."""
        self._has_ended.set()
        for box in self._boxes:
            box.drop_all()

    def close(self) -> None:
        """Try once more what waits for a shard, and drop the connections."""
        self._has_ended.set()
        for box in self._boxes:
            if len(box) and not box.stream.client.is_away:
                with suppress(RedisUnavailableError, ReplayFullError):
                    box.push(timeout_s=_LAST_TRY_S, is_limited=False)
            box.close()

    def metrics(self) -> dict[str, float]:
        """The sums over all shards; how often the shard was changed, and how many chunks wait for one to come back."""
        parts = [box.metrics() for box in self._boxes]
        sums = {name: sum(part[name] for part in parts) for name in parts[0]}
        kept = sum(len(box) for shard, box in enumerate(self._boxes) if shard != self._current)
        return sums | {"sender/shard_changes_total": self._moves, "sender/kept_chunks_count": kept}

    def __len__(self) -> int:
        return sum(map(len, self._boxes))

    def _move(self, stop: threading.Event | None) -> None:
        """Go on at the next shard that answers, or at the same one after a pause, and take along what was not tried."""
        others = [(self._current + i) % len(self._boxes) for i in range(1, len(self._boxes))]
        found = next((shard for shard in others if self._boxes[shard].stream.client.ping()), None)
        self._watch(self._current)
        if found is None:
            if stop is None:
                time.sleep(_PAUSE_S)
            elif stop.wait(_PAUSE_S):
                raise StoppedError("the sender was stopped while no shard answered")
            return
        logger.warning("shard %d does not answer; experience goes to shard %d", self._current, found)
        self._go_to(found)

    def _go_to(self, shard: int) -> None:
        """Send to another shard from now on, also what was not tried at this one."""
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

    def _look_after_returned(self, timeout_s: float, is_limited: bool, stop: threading.Event | None) -> None:
        """Store what was kept for shards that are back; and go home, if home is one of them."""
        for _ in range(len(self._are_back)):
            shard = self._are_back.popleft()
            self._watched.discard(shard)
            if shard == self._current:
                continue
            try:
                # The limiter is not asked: this chunk had its credit, or was stored already.
                self._boxes[shard].push(timeout_s=_LAST_TRY_S, is_limited=False, stop=stop)
            except ReplayFullError:
                pass  # with the next chunks, if it is home; else with the last
            except RedisUnavailableError:
                self._watch(shard)
                continue
            if shard == self._home:
                self._go_home(timeout_s, is_limited, stop)

    def _go_home(self, timeout_s: float, is_limited: bool, stop: threading.Event | None) -> None:
        try:
            self._boxes[self._current].push(timeout_s=timeout_s, is_limited=is_limited, stop=stop)
        except RedisUnavailableError:
            self._watch(self._current)
        except ReplayFullError:
            self._watch(self._home)  # go there with a later push
            raise
        logger.info("shard %d answers again; experience goes there", self._home)
        self._go_to(self._home)


def make_outbox(
    shards: ReplayShards, home: int, *, drops_when_full: bool, max_stream_bytes: int
) -> Outbox | ShardedOutbox:
    """Make the outbox for as many shards as there are; arguments as for `ShardedOutbox`."""
    if len(shards) > 1:
        return ShardedOutbox(shards, home, drops_when_full=drops_when_full, max_stream_bytes=max_stream_bytes)
    return Outbox(shards.stream(home), drops_when_full=drops_when_full, max_stream_bytes=max_stream_bytes)
