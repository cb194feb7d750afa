"""The learner's half of a turn, where one process acts and learns: counts decide what is done, and no thread."""

from __future__ import annotations

from typing import Any

from surreal.base.types import Batch, TrajectoryBatch
from surreal.replay import Replay


def take_in(replay: Replay[Any]) -> None:
    """Have a replay take in what was sent since the last turn."""
    replay.owner.refresh()
    queue = replay.pointer_queue
    while queue.enqueue_step(waits=False):
        while len(queue) and replay.step(0.0):
            pass


def next_batch(replay: Replay[Any]) -> Batch | TrajectoryBatch | None:
    """Give the next batch, made only now: with the priorities that came of the one before. None if none is allowed."""
    while not len(replay.fetcher_queue):
        if not replay.step(0.0):
            return None
    batch: Batch | TrajectoryBatch | None = replay.dequeue(0.0)
    return batch
