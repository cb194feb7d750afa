"""ShardedPointerQueue: one `PointerQueue` a shard, and their chunks in one order.

Order is defined within a shard only. Until all shards were read to their ends once, chunks come in the order of the
servers' clocks, so that a replay that is rebuilt lets go of what is oldest, whichever shard it was on; later, as they
arrive. A shard that does not answer is not waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from surreal.distributed.experience.format.codec import Chunk, Contract
from surreal.distributed.experience.reading.pointer_queue import PointerQueue
from surreal.distributed.experience.stream import Stream


class ShardedPointerQueue:
    """Follows the streams of several shards.

    Args:
        streams: of the shards.
        stop: ends the waits.
        may_read: whether the stream of a shard may be read now.
        needs_blocks, on_ready: as for `PointerQueue`; called on several threads.

    Attributes:
        has_caught_up: set once all shards that answer were read to their ends.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        stop: threading.Event,
        needs_blocks: Callable[[Contract], bool],
        on_ready: Callable[[], object],
        may_read: Callable[[int], bool] = lambda _: True,
    ) -> None:
        is_patient = len(streams) > 1  # the other shards are worth going on for
        self.queues = [
            PointerQueue(
                stream,
                stop=stop,
                is_patient=is_patient,
                needs_blocks=needs_blocks,
                on_ready=on_ready,
                may_read=partial(may_read, stream.shard),
            )
            for stream in streams
        ]
        self.has_caught_up = self.queues[0].has_caught_up if len(streams) == 1 else threading.Event()

    def enqueue_step(self, *, waits: bool = True) -> int:
        """Read what is new in each shard in turn: for a loop without threads. Returns how many chunks were queued.

        Args:
            waits: as for `PointerQueue`.
        """
        return sum(queue.enqueue_step(waits=waits) for queue in self.queues)

    def dequeue(self, may_take: Callable[[int], bool] = lambda _: True) -> Chunk | None:
        """The next chunk; None if none is ready.

        Args:
            may_take: whether chunks of a shard can be used now; asked only when one is there.
        """
        if len(self.queues) == 1:
            queue = self.queues[0]
            return queue.dequeue() if len(queue) and may_take(queue.stream.shard) else None
        waiting, first, first_id = False, None, (0, 0)
        for queue in self.queues:
            has_caught_up = queue.has_caught_up.is_set()  # before it is looked into: what it has now came before that
            next_id = queue.next_id
            if next_id is None or not may_take(queue.stream.shard):
                waiting |= not has_caught_up and not queue.stream.client.is_away
            elif first is None or next_id < first_id:
                first, first_id = queue, next_id
        if not waiting:
            self.has_caught_up.set()
        elif not self.has_caught_up.is_set():
            return None  # what is missing may be older
        return first.dequeue() if first is not None else None

    @property
    def refused_chunks(self) -> int:
        """Chunks that made no sense."""
        return sum(queue.refused_chunks for queue in self.queues)

    @property
    def gone_chunks(self) -> int:
        """Chunks that were evicted before they were downloaded."""
        return sum(queue.gone_chunks for queue in self.queues)

    @property
    def lost_chunks(self) -> int:
        """Chunks that were in the streams, and never came out."""
        return self.refused_chunks + self.gone_chunks

    def __len__(self) -> int:
        return sum(map(len, self.queues))
