"""Intakes: a learner's batches come from a replay with threads, from one that is stepped, or from agents' gradients.

`LearnerSession` and agents that compute gradients call:

    intake.take_in()
    while (batch := intake.next_batch(timeout_s)) is not None: ...
"""

from __future__ import annotations

from typing import Any

from surreal.replay import Replay


class ThreadedIntake:
    """A replay whose threads take in experience and make batches ahead."""

    is_stepped = False

    def __init__(self, replay: Replay[Any]) -> None:
        self._replay = replay

    def take_in(self) -> None:
        """Start the threads."""
        self._replay.start_threads()

    def next_batch(self, timeout_s: float) -> Any:
        """Return the next batch; None if none came in time."""
        return self._replay.dequeue(timeout_s)


class SteppedIntake:
    """A replay without threads, for a process that acts and learns in turn."""

    is_stepped = True

    def __init__(self, replay: Replay[Any]) -> None:
        self._replay = replay

    def take_in(self) -> None:
        """Insert the experience that was sent since the last turn."""
        self._replay.owner.refresh()
        queue = self._replay.pointer_queue
        while queue.enqueue_step(waits=False):
            while len(queue) and self._replay.step(0.0):
                pass

    def next_batch(self, timeout_s: float = 0.0) -> Any:
        """Make the next batch, with the priorities of the last one; None if the limiter allows none."""
        while not len(self._replay.fetcher_queue):
            if not self._replay.step(0.0):
                return None
        return self._replay.dequeue(0.0)
