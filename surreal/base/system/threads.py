"""Supervised threads, named loops that stop together and report failures to their owner; and a queue between threads.

A thread calls one public `step()` of its component in a loop, so a test or the deterministic mode can call the same
step without a thread. The owner calls `check()` where it waits, and gets the original exception.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from surreal.base.errors import StoppedError, SurrealError, ThreadFailedError
from surreal.base.system.health import Pulse

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Supervisor:
    """Owns a group of looping threads: the first failure stops all of them and is raised at the owner."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop_event = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: tuple[str, BaseException] | None = None
        self._lock = threading.Lock()
        self._here = threading.local()

    def spawn(self, name: str, step: Callable[[], object]) -> None:
        """Start a thread that calls `step` until `stop`; `step` returns, or calls `turn`, at least every second."""
        thread = threading.Thread(target=self._loop, args=(name, step), name=f"{self.name}/{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def turn(self) -> None:
        """Report that the step of the calling thread makes progress; raises `StoppedError` if the threads must end."""
        self._here.pulse.has_turned = True
        if self.stop_event.is_set():
            raise StoppedError(f"the threads of {self.name} were stopped")

    def check(self) -> None:
        """Raise `ThreadFailedError`, caused by its exception, if a thread has failed."""
        if self._failure is not None:
            name, error = self._failure
            raise ThreadFailedError(f"thread {self.name}/{name} failed: {error}") from error

    def check_errors(self) -> None:
        """Raise as `check` does, but a thread's `SurrealError` itself."""
        if self._failure is not None and isinstance(self._failure[1], SurrealError):
            raise self._failure[1] from None
        self.check()

    @property
    def is_running(self) -> bool:
        return bool(self._threads) and not self.stop_event.is_set()

    def stop(self) -> None:
        """Ask all threads to end; returns at once."""
        self.stop_event.set()

    def join(self, timeout_s: float) -> bool:
        """Wait until all threads have ended; returns whether they did."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            logger.warning("threads still running after %.1f s: %s", timeout_s, ", ".join(alive))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        return not alive

    def _loop(self, name: str, step: Callable[[], object]) -> None:
        pulse = self._here.pulse = Pulse(f"thread {self.name}/{name}")
        try:
            while not self.stop_event.is_set():
                pulse.has_turned = True
                step()
        except StoppedError:
            self.stop_event.set()
        except BaseException as error:
            with self._lock:
                if self._failure is None:
                    self._failure = (name, error)
            logger.debug("thread %s/%s failed", self.name, name, exc_info=True)
            self.stop_event.set()
        finally:
            pulse.close()


class HandoverQueue(Generic[T]):
    """An unbounded queue with one consumer, whose waits end in time also on the main thread.

    It is as fast as `queue.SimpleQueue`. In CPython 3.11 and 3.12, `SimpleQueue.get` never returns if a signal
    interrupts it and the timeout ends before the handler does.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._is_awaited = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def put(self, item: T) -> None:
        """Add an item; any thread may call it."""
        self._items.append(item)
        if self._is_awaited:
            self._is_awaited = False
            with suppress(RuntimeError):  # another put has woken the consumer already
                self._wake.release()

    def take(self, timeout_s: float) -> T | None:
        """Wait for the next item and return it; None if none came in time."""
        return self._items.popleft() if self.wait(timeout_s) else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is an item, and leave it there; returns whether one came in time."""
        if self._items:
            return True
        deadline_s = time.monotonic() + timeout_s
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            self._is_awaited = True
            if not self._items:  # a later put wakes us, or already did
                self._wake.acquire(timeout=remaining_s)
            self._is_awaited = False
            if self._items:
                return True
        return False

    def __len__(self) -> int:
        return len(self._items)
