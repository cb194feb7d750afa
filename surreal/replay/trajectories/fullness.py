"""`Fullness`: agents wait for room in a full stream while a batch waits for their steps; how long that may last."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

#: How long the stream may be full, and no batch complete, before open trajectories are given up, s; and before it is
#: said that nothing was committed.
_FULL_TIMEOUT_S = 2.0
_COMMIT_TIMEOUT_S = 30.0


class Fullness:
    """Watches one replay; used by its thread."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._has_warned = False

    def lasts(self, is_full: bool, *, uncommitted: int) -> bool:
        """Whether the stream is full for so long that nothing but the replay itself can end it.

        Args:
            is_full: the stream is, and no batch is complete.
            uncommitted: batches handed out whose commit would make room; a warning says so when they are late.
        """
        now_s = time.monotonic()
        if not is_full:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif not uncommitted:
            return now_s - self._since_s >= _FULL_TIMEOUT_S
        elif now_s - self._since_s >= _COMMIT_TIMEOUT_S and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the stream is full, and %d batches were handed out and not committed: call commit() after each"
                " broadcast, broadcast more often, or raise max_bytes", uncommitted,
            )  # fmt: skip
        return False
