"""ShardedPointerQueue: the chunks of several shards in one order, whatever the threads that read them do in between."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.pointer_queue import ShardedPointerQueue
from surreal.distributed.experience.shards import ReplayShards


class Queue:
    """A shard of which everything has come, but is not here before it was looked for once."""

    def __init__(self, shard: int, entry_id: tuple[int, int], *, is_late: bool) -> None:
        self.stream = SimpleNamespace(shard=shard, client=SimpleNamespace(is_away=False))
        self.has_caught_up = threading.Event()
        self._entry_id = entry_id
        if not is_late:
            self.has_caught_up.set()

    @property
    def next_id(self) -> tuple[int, int] | None:
        found = self._entry_id if self.has_caught_up.is_set() else None
        self.has_caught_up.set()  # as the other thread does, just after the look
        return found

    def dequeue(self) -> Any:
        return self._entry_id


@pytest.mark.parametrize("late", [0, 1])
def test_a_shard_that_is_read_between_two_looks_is_not_passed_over(late: int) -> None:
    streams = ReplayShards(RedisClient(run="r"), 2).streams()
    queues = ShardedPointerQueue(streams, stop=threading.Event(), needs_blocks=lambda _: True, on_ready=lambda: None)
    queues.queues = [Queue(shard, (1 + (shard != late), 0), is_late=shard == late) for shard in range(2)]  # type: ignore[misc]
    assert queues.dequeue() is None, "what is missing may be older"
    assert not queues.has_caught_up.is_set()
    assert queues.dequeue() == (1, 0)
    assert queues.has_caught_up.is_set()
