"""Uploads: sends checkpoints to a place that may be slow or away, on a thread of its own.

At most one checkpoint is on its way and one waits; a newer one takes the place of the one that waits. What failed is
tried again, ever more rarely, until it arrives or gives way.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from surreal.base.checkpoint.place import Place
from surreal.base.checkpoint.ranking import Ranking

logger = logging.getLogger(__name__)

#: Pauses after one failure, and at most, s.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 60.0
#: Where the run waits for it, s.
_END_PAUSE_S = 0.5


class _Upload(NamedTuple):
    step: int
    data: bytes
    ranking: Ranking


class Uploads:
    """Checkpoints on their way to one place.

        uploads.offer(step, data, ranking)   # never waits
        uploads.finish(timeout_s)            # once, at the end

    Args:
        place: where they go.
        clock: seconds, monotonic.

    Attributes:
        sent: checkpoints that arrived.
        failures: tries that failed.
        replaced: checkpoints that gave way to newer ones before they arrived.
        last_s: how long the last one took that arrived, s.
    """

    def __init__(self, place: Place, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self.sent = self.failures = self.replaced = 0
        self.last_s = 0.0
        self._clock = clock
        self._random = random.Random()
        self._waiting: _Upload | None = None
        self._sending: _Upload | None = None
        self._problem = ""
        self._pause_s = 0.0
        self._due_s = -float("inf")
        self._is_ending = self._is_over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, step: int, data: bytes, ranking: Ranking) -> None:
        """Have a checkpoint sent; the first one starts the thread. Never waits for the place."""
        with self._changed:
            if self._is_over:
                return
            if self._waiting is not None:
                self.replaced += 1
            self._waiting = _Upload(step, data, ranking)
            if self._thread is None:
                # No supervised loop: one that is in an upload for minutes does not hang.
                name = f"checkpoint-uploads {self.place.folder}"
                self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> str:
        """Wait for what is on its way, then let the thread end. What came later than that is not sent.

        Returns:
            Why the newest checkpoint did not arrive, "" if it did.
        """
        deadline_s = self._clock() + timeout_s
        with self._changed:
            self._is_ending, self._due_s = True, -float("inf")
            self._changed.notify_all()
            while self._is_busy and (remaining_s := deadline_s - self._clock()) > 0:
                self._changed.wait(remaining_s)
            late = self._waiting or self._sending
            self._is_over, self._waiting = True, None
            self._changed.notify_all()
        if late is None:
            return ""
        return f"{self.place.path_of(late.step)} did not arrive: {self._problem or 'its upload takes too long'}"

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint waits, or is on its way."""
        with self._changed:
            return self._is_busy

    def step(self) -> None:
        """One turn of the thread: send what waits, if it is time; else wait for that, at most a second."""
        with self._changed:
            wait_s = 1.0 if self._waiting is None else self._due_s - self._clock()
            if self._waiting is None or wait_s > 0:
                self._changed.wait(min(wait_s, 1.0))
                return
            upload = self._sending = self._waiting
            self._waiting = None
        began_s = self._clock()
        try:
            self.place.put(upload.step, upload.data, upload.ranking)
        except Exception as error:  # whatever it is, learning goes on
            self._failed(upload, error)
        else:
            self._arrived(upload, self._clock() - began_s)

    @property
    def _is_busy(self) -> bool:
        return self._waiting is not None or self._sending is not None

    def _loop(self) -> None:
        while not self._is_over:
            self.step()

    def _arrived(self, upload: _Upload, duration_s: float) -> None:
        logger.info("checkpoint %s arrived after %.1f s", self.place.path_of(upload.step), duration_s)
        with self._changed:
            self.sent += 1
            self.last_s, self._pause_s, self._problem = duration_s, 0.0, ""
            self._sending = None
            self._changed.notify_all()

    def _failed(self, upload: _Upload, error: Exception) -> None:
        if not self._problem:  # once, until one arrives
            logger.warning("%s; learning goes on, and it is tried again", error)
        with self._changed:
            self.failures += 1
            self._problem, self._sending = str(error), None
            self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S) or _FIRST_PAUSE_S
            pause_s = min(self._pause_s, _END_PAUSE_S) if self._is_ending else self._pause_s
            self._due_s = self._clock() + pause_s * self._random.uniform(0.5, 1.0)
            if self._waiting is None:
                self._waiting = upload
            else:
                self.replaced += 1
            self._changed.notify_all()
