"""PointerQueue in a loop without threads."""

from __future__ import annotations

import numpy as np

from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.sender import ExpSender


def test_a_loop_without_threads_reads_no_more_than_the_queue_takes() -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, chunk_steps=1)
    for number in range(21):
        sender.send([np.full(2, number, np.float32)], 0, 0.0, False)
    sender.flush()
    queue = PointerQueue(shards.local, max_chunks=10, read_count=4)
    assert [queue.enqueue_step(waits=False) for _ in range(4)] == [4, 4, 0, 0], "it does not wait for room"
    found = []
    while chunk := queue.dequeue():
        found.append(chunk.leaves[0][0, 0])
        while queue.enqueue_step(waits=False):
            pass
    assert found == list(range(20))
