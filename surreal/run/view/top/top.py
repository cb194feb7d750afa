"""`surreal top`: shows a run until it is over, or the person who looks at it has seen enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from surreal.base.errors import RedisUnavailableError
from surreal.distributed.connection.client import RedisClient
from surreal.run.view.live.progress import Progress
from surreal.run.view.top.following import Follower
from surreal.run.view.top.keyboard import Keyboard

#: Between two looks at the run: as often as its processes say something.
_INTERVAL_S = 1.0
#: How long a signal may go unnoticed, s.
_PATIENCE_S = 0.2

_KEYS = "q leaves this view, s asks the run to stop"
_CONFIRM = "ask the run to stop? y: yes, any other key: no"
_ASKED = "the run was asked to stop; q leaves this view"
_NOT_ASKED = "Redis did not take it; s tries again, q leaves this view"


class Top:
    """Shows one run.

    Args:
        client: of the run.
        console: where to; lines every few seconds if that is no terminal.
        keys: where keys are pressed; None: nowhere.
        stop: ends the view when it is set.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        client: RedisClient,
        console: Console,
        keys: TextIO | None,
        stop: threading.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follower = follower = Follower(client)
        self._address = client.address
        self._keys = keys
        self._stop = stop
        self._clock = clock
        self._is_confirming = False
        self._progress = Progress(
            client.run, console, follower.limits(), history=follower.history(clock()), clock=clock
        )

    def print_once(self) -> None:
        """Print the run as it is now.

        Raises:
            RedisUnavailableError: no answer.
        """
        if not self._look():
            raise RedisUnavailableError(f"Redis at {self._address} does not answer", address=self._address)
        self._progress.print_frame()

    def watch(self) -> str:
        """Show the run until it is over, `q` is pressed, or this view is to end.

        Returns:
            Why the run has ended; "" if it goes on.
        """
        progress, follower = self._progress, self._follower
        with Keyboard(self._keys) as keyboard, progress:
            progress.footer = _KEYS if keyboard.is_there else ""
            look_s = self._clock()
            while not (self._stop.is_set() or follower.is_over or keyboard.is_gone):
                if self._clock() >= look_s:
                    self._look()
                    look_s = self._clock() + _INTERVAL_S
                key = keyboard.read(min(max(look_s - self._clock(), 0.0), _PATIENCE_S))
                if key and self._press(key):
                    break
            progress.finish(follower.snapshot, is_over=follower.is_over)
        return (follower.stop_reason or "all of its processes have ended") if follower.is_over else ""

    def _look(self) -> bool:
        follower = self._follower
        if not follower.look():
            self._progress.phase(f"waiting for Redis at {self._address}")
            return False
        snapshot, reason = follower.snapshot, follower.stop_reason
        phase = f"ending: {reason}" if reason else "" if snapshot.alive else "waiting: none of its processes is alive"
        self._progress.show(snapshot, phase=phase, age_s=snapshot.age_s)
        return True

    def _press(self, key: str) -> bool:
        """Do what a key means; returns whether this view ends."""
        if self._is_confirming:
            self._is_confirming = False
            is_sure = key in "yY"
            self._progress.footer = _KEYS if not is_sure else _ASKED if self._follower.ask_to_stop() else _NOT_ASKED
        elif key in "qQ":
            return True
        elif key in "sS":
            self._is_confirming, self._progress.footer = True, _CONFIRM
        self._progress.redraw()
        return False
