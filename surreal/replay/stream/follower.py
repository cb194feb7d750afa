"""StreamFollower: one stream as a replay sees it that does not own it, and only reads."""

from __future__ import annotations

import logging
import threading
import time

from surreal.distributed.experience.stream import Stream

logger = logging.getLogger(__name__)


class StreamFollower:
    """Reads the counts of one stream; used by one thread.

    Args:
        is_patient: whether reading waits until Redis answers.

    Attributes:
        steps: env steps of the shard, as last heard.
        last_tick_s: time of the last read of the counts, on `time.monotonic`'s clock; 0: never.
        last_try_s: time of the last attempt; 0: never.
        num_emptied: number of times that Redis came back empty.
    """

    def __init__(self, stream: Stream, *, stop: threading.Event, is_patient: bool = True) -> None:
        self.stream = stream
        self.epoch = ""
        self.steps = self.live_bytes = self.live_steps = 0
        self.last_tick_s = self.last_try_s = 0.0
        self.num_emptied = 0
        self._stop = stop
        self._is_patient = is_patient

    def read(self) -> None:
        self.last_try_s = time.monotonic()
        client, what = self.stream.client, "read the stream's counts"
        if self._is_patient:
            counts = client.retry(self.stream.counts, what=what, stop=self._stop)
        else:
            found = client.attempt(self.stream.counts, what=what)
            if found is None:
                return
            counts = found
        self.last_tick_s = time.monotonic()
        if self.epoch not in ("", counts.epoch):
            self.num_emptied += 1
            logger.warning("the stream has a new epoch: Redis was emptied")
        self.epoch = counts.epoch
        # After Redis was emptied the shard counts from zero until its owner has added what it knew.
        self.steps = max(self.steps, counts.steps)
        self.live_steps, self.live_bytes = counts.live_steps, counts.live_bytes
