"""Supervised threads: named loops that stop together, and whose failure reaches their owner.

A thread's body is one public `step()` of its component, called again and again; so a test, or the deterministic mode,
calls the same step without any thread. The owner calls `check()` where it waits, and gets the original exception.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from surreal.base.errors import StoppedError, ThreadFailedError
from surreal.base.liveness.pulse import Pulse

logger = logging.getLogger(__name__)


class Supervisor:
    """Owns a group of looping threads: the first failure stops all of them and is raised at the owner.

    Args:
        name: prefix of the threads' names.
    """

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
        """Show that the step of the calling thread makes progress.

        Raises:
            StoppedError: the threads are to end.
        """
        self._here.pulse.has_turned = True
        if self.stop_event.is_set():
            raise StoppedError(f"the threads of {self.name} were stopped")

    def check(self) -> None:
        """Raise what killed a thread.

        Raises:
            ThreadFailedError: with the thread's exception as its cause.
        """
        if self._failure is not None:
            name, error = self._failure
            raise ThreadFailedError(f"thread {self.name}/{name} failed: {error}") from error

    @property
    def is_running(self) -> bool:
        """Whether threads were started and none was told to stop."""
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
