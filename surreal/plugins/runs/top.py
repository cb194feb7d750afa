"""`surreal top`: the live view of any run, from anywhere that reaches its Redis."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import termios
import threading
import time
import tty
from contextlib import suppress
from typing import Any, Self, TextIO

from redis.exceptions import RedisError
from rich.console import Console

from surreal.base.errors import ConfigError, RedisUnavailableError, SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.run.process import registry
from surreal.run.view.live.progress import Display
from surreal.run.view.live.trend import RunLimits, Trend
from surreal.run.view.reader import RunReader, RunTracker
from surreal.run.view.run_view import RunView

logger = logging.getLogger(__name__)

#: Evaluation rounds that are read at the start, at most.
_MAX_ROUNDS = 256
#: Time between two looks at the run, s: the interval of heartbeats.
_INTERVAL_S = 1.0
#: Longest wait for a key before signals are checked, s.
_KEY_TIMEOUT_S = 0.2

_KEYS = "q leaves this view, s asks the run to stop"
_CONFIRM = "ask the run to stop? y: yes, any other key: no"
_ASKED = "the run was asked to stop; q leaves this view"
_NOT_ASKED = "Redis did not take it; s tries again, q leaves this view"


class Top:
    """Shows one run until it is over, or the user leaves; where output is not a terminal, lines every few seconds."""

    def __init__(self, client: RedisClient, console: Console, keys: TextIO | None, stop: threading.Event) -> None:
        self._follower = follower = Follower(client)
        self._address = client.address
        self._keys, self._stop = keys, stop
        self._is_confirming = False
        self._progress = Display(client.run, console, follower.limits(), trend=follower.trend(time.monotonic()))

    def print_once(self) -> None:
        if not self._look():
            raise RedisUnavailableError(f"Redis at {self._address} does not answer", address=self._address)
        self._progress.print_frame()

    def watch(self) -> str:
        """Show the run until it is over or the user leaves; return why the run has ended, "" if it continues."""
        progress, follower = self._progress, self._follower
        with Keyboard(self._keys) as keyboard, progress:
            progress.footer = _KEYS if keyboard.is_there else ""
            look_s = time.monotonic()
            while not (self._stop.is_set() or follower.is_over or keyboard.is_gone):
                if time.monotonic() >= look_s:
                    self._look()
                    look_s = time.monotonic() + _INTERVAL_S
                key = keyboard.read(min(max(look_s - time.monotonic(), 0.0), _KEY_TIMEOUT_S))
                if key and self._press(key):
                    break
            progress.finish(follower.view, is_over=follower.is_over)
        return (follower.stop_reason or "all of its processes have ended") if follower.is_over else ""

    def _look(self) -> bool:
        follower = self._follower
        if not follower.look():
            self._progress.phase(f"waiting for Redis at {self._address}")
            return False
        view, reason = follower.view, follower.stop_reason
        phase = f"ending: {reason}" if reason else "" if view.alive else "waiting: none of its processes is alive"
        self._progress.show(view, phase=phase, age_s=view.age_s)
        return True

    def _press(self, key: str) -> bool:
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


class Follower(RunTracker):
    """Follows a run from outside, with one round trip for each update."""

    def __init__(self, client: RedisClient) -> None:
        self.stop_reason = ""  #: why the run ends or has ended; "" while it continues
        self._client = client
        self._reader = RunReader(client)
        super().__init__(self._read_run)
        self._was_alive = False
        self._has_processes = False
        self._is_away = False

    def look(self) -> bool:
        """Look at the run; returns whether Redis answered."""
        self._is_away = not super().look()
        return not self._is_away

    @property
    def is_over(self) -> bool:
        """Whether the run was told to end and nothing of it is alive, or all of its processes have ended in order."""
        if self.stop_reason and (self._is_away or not self.view.alive):  # its own Redis ends with it
            return True
        return self._was_alive and not self._has_processes

    def ask_to_stop(self) -> bool:
        """Ask the run to end; returns whether Redis took it."""
        try:
            registry.request_stop(self._client, "surreal top")
        except (RedisError, SurrealError) as error:
            logger.debug("the run was not told: %s", error)
            return False
        return True

    def limits(self) -> RunLimits:
        """Read the run's limits from its configuration; there are none if no configuration is registered."""
        try:
            return RunLimits.of(registry.stored_config(self._client))
        except ConfigError as error:
            logger.debug("no limits are known: %s", error)
            return RunLimits()

    def trend(self, now_s: float) -> Trend:
        """Read the evaluation rounds that Redis still has; `now_s` is by the clock of those who add to the trend."""

        def read() -> Any:
            pipeline = self._client.redis.pipeline(transaction=False)
            pipeline.time()
            pipeline.xrevrange(self._client.run_keys.scores, count=_MAX_ROUNDS)
            return pipeline.execute()

        (seconds, _), entries = self._client.retry(read, what="read the scores")
        trend = Trend()
        for _, fields in reversed(entries):
            if (found := _round(fields.get(b"round", b""))) is not None:
                number, time_s, mean_return = found
                trend.add_round(mean_return, number + 1, now_s - (seconds - time_s))
        return trend

    def _read_run(self) -> RunView:
        view = self._reader.read()
        self.stop_reason = view.stop_reason or ("" if view.alive else self.stop_reason)
        self._was_alive |= bool(view.alive)
        self._has_processes = bool(view.processes)
        return view


def _round(text: bytes) -> tuple[int, float, float] | None:
    """Decode number, time and mean return (NaN if missing) of a round; None if the text is not one."""
    try:
        data = json.loads(text)
        mean_return = data["mean_return"]
        found = int(data["round"]), float(data["time"]), math.nan if mean_return is None else float(mean_return)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return found if math.isfinite(found[1]) else None


class Keyboard:
    """Keys as they are pressed, without Enter and without echo; `with` restores the terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._file = stream.fileno() if stream is not None and stream.isatty() else None
        self.is_there = self._file is not None  #: whether there are keys: the stream is a terminal
        self._before: list[Any] | None = None
        self.is_gone = False  #: whether the terminal was closed

    def __enter__(self) -> Self:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._file is not None and self._before is not None:
            with suppress(termios.error):  # a terminal that is gone
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> str:
        """Wait for a key; "" if none was pressed in time, or the terminal is gone."""
        if self.is_gone or self._file is None:
            time.sleep(timeout_s)
            return ""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return ""
        try:
            data = os.read(self._file, 1)
        except OSError:
            data = b""
        self.is_gone = not data
        return data.decode("ascii", "replace")
