"""HandoverQueue: what one thread makes for another that waits for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class HandoverQueue(Generic[T]):
    """An unbounded queue with one taker, whose waits end in time also on a main thread.

    It is as quick as `queue.SimpleQueue`, whose `get`, in CPython 3.11 and 3.12, never returns if a signal interrupts
    it and the timeout is over when the handler has run: on a busy machine, or after a suspension.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._is_awaited = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def put(self, item: T) -> None:
        """Add an item; any thread may."""
        self._items.append(item)
        if self._is_awaited:
            self._is_awaited = False
            with suppress(RuntimeError):  # another one has woken the taker already
                self._wake.release()

    def take(self, timeout_s: float) -> T | None:
        """The next item, waiting for it; None if none came in time."""
        return self._items.popleft() if self.wait(timeout_s) else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is an item, and leave it there; returns whether one came in time. For the taker."""
        if self._items:
            return True
        deadline_s = time.monotonic() + timeout_s
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            self._is_awaited = True
            if not self._items:  # what is put from now on wakes us, or did so for one that was taken since
                self._wake.acquire(timeout=remaining_s)
            self._is_awaited = False
            if self._items:
                return True
        return False

    def __len__(self) -> int:
        return len(self._items)
