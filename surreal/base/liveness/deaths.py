"""`RecentDeaths`: how often something died lately. What starts it again waits longer, or gives up, by this count."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

#: How far back `run.restart_limit` looks, s.
RESTART_WINDOW_S = 60.0


class RecentDeaths:
    """Counts deaths within a window that ends now.

    Args:
        window_s: length of the window, s, > 0.
        clock: seconds, monotonic.
    """

    def __init__(self, window_s: float = RESTART_WINDOW_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.window_s = window_s
        self._clock = clock
        self._times_s: deque[float] = deque()

    def add(self) -> int:
        """Note a death of this moment; return how many there were within the window, this one included."""
        self._times_s.append(self._clock())
        return len(self)

    def __len__(self) -> int:
        while self._times_s and self._times_s[0] < self._clock() - self.window_s:
            self._times_s.popleft()
        return len(self._times_s)
