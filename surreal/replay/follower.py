"""StreamFollower: what a replay that does not own its stream has in place of a `StreamOwner`.

It takes no lease, removes nothing, and grants the agents no credit; it reads the counts of the stream a few times a
second. A samples-per-insert limiter holds the learner back alone, and counts from when it began to follow.
"""

from __future__ import annotations

import logging
import threading
import time

from surreal.distributed.stream import Stream
from surreal.replay.limiter import SamplesPerInsert
from surreal.replay.storage import StoredChunk

logger = logging.getLogger(__name__)

_INTERVAL_S = 0.25
_URGENT_INTERVAL_S = 0.02


class StreamFollower:
    """Reads the counts of one stream; used by one thread.

    Args:
        stream: the shard.
        limiter: the samples-per-insert band, None for no limit.
        max_bytes: accounted bytes of the chunks to keep an index of; None: no bound but the capacity.
        stop: ends waits.
    """

    is_owner = False

    def __init__(
        self, stream: Stream, limiter: SamplesPerInsert | None, *, max_bytes: int | None, stop: threading.Event
    ) -> None:
        self.stream = stream
        self.limiter = limiter
        self.max_bytes = max_bytes or 1 << 62
        self.epoch = ""
        self.global_step = 0
        self.samples = 0
        self._stop = stop
        self._base_steps = self._base_samples = 0
        self._last_read_s: float | None = None
        self._live_bytes = self._live_steps = 0

    def restore(self, *, global_step: int, samples: int) -> None:
        """Take over the counts of a checkpoint."""
        self.global_step, self.samples = global_step, samples

    def claim(self) -> None:
        """Read the counts once before anything else."""
        if self._last_read_s is None:
            self._read()

    def renew(self, *, is_waiting: bool = False) -> None:
        """Read the counts if it is time.

        Args:
            is_waiting: the learner waits for the limiter, so the count of env steps must be fresh.
        """
        interval_s = _URGENT_INTERVAL_S if is_waiting else _INTERVAL_S
        if self._last_read_s is None or time.monotonic() - self._last_read_s >= interval_s:
            self._read()

    def release(self) -> None:
        """Nothing is held."""

    def evict(self, chunk: StoredChunk) -> None:
        """The chunk belongs to the owner: it stays in Redis."""

    def make_room_for(self, chunk: StoredChunk) -> None:
        """Room is the owner's care."""

    def rebase(self, alive: int) -> None:
        """Let the limiter count from here, with `alive` transitions inserted."""
        self._base_steps, self._base_samples = max(self.global_step - alive, 0), self.samples

    def may_sample(self, number: int) -> bool:
        """Whether the limiter lets the learner draw that many transitions."""
        inserted, sampled = self.global_step - self._base_steps, self.samples - self._base_samples
        return self.limiter is None or self.limiter.may_sample(inserted, sampled, number)

    def count_samples(self, number: int) -> None:
        """Count transitions that were drawn."""
        self.samples += number

    def metrics(self) -> dict[str, float]:
        """State of the stream when it was last read."""
        return {
            "replay/global_step": self.global_step,
            "replay/samples": self.samples,
            "replay/samples_per_insert": (self.samples - self._base_samples)
            / max(self.global_step - self._base_steps - (self.limiter.start_size if self.limiter else 0), 1),
            "replay/redis_bytes": self._live_bytes,
            "replay/bytes_per_transition": self._live_bytes / max(self._live_steps, 1),
        }

    def _read(self) -> None:
        counts = self.stream.client.retry(self.stream.counts, what="read the stream's counts", stop=self._stop)
        self._last_read_s = time.monotonic()
        if self.epoch not in ("", counts.epoch):
            logger.warning("the stream has a new epoch: Redis was emptied")
        self.epoch = counts.epoch
        # After Redis was emptied the shard counts from zero until its owner has added what it knew.
        self.global_step = max(self.global_step, counts.steps)
        self._live_steps, self._live_bytes = counts.live_steps, counts.live_bytes
