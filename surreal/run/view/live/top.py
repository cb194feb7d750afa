"""surreal top."""

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
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TextIO

from redis.exceptions import RedisError
from rich.console import Console

from surreal.base.errors import ConfigError, RedisUnavailableError, SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import parse_heartbeats
from surreal.run.process import registry
from surreal.run.view.live.progress import Progress
from surreal.run.view.live.trend import History, RunLimits
from surreal.run.view.reader import Onlooker, Snapshot, summarize_processes

logger = logging.getLogger(__name__)


class Keyboard:
    """A terminal's keys, in a `with`, after which the terminal is as it was.

    Args:
        stream: to read from; None, and what is no terminal, has no keys.

    Attributes:
        is_there: whether there are keys.
        is_gone: whether the terminal was closed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._file = stream.fileno() if stream is not None and stream.isatty() else None
        self.is_there = self._file is not None
        self._before: list[Any] | None = None
        self.is_gone = False

    def __enter__(self) -> Self:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None and self._before is not None:
            with suppress(termios.error):  # a terminal that is gone
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> str:
        """The next key; "" if none was pressed in time, or the terminal is gone."""
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


#: Rounds of evaluation that are read at the beginning, at most.
_MAX_ROUNDS = 256


class Follower:
    """Follows one run.

    Args:
        client: of the run.

    Attributes:
        stop_reason: why the run ends or has ended; "" while it goes on.
    """

    def __init__(self, client: RedisClient) -> None:
        self.stop_reason = ""
        self._client = client
        self._onlooker = Onlooker(self._take)
        self._was_alive = False
        self._knows_anybody = False
        self._is_away = False

    @property
    def snapshot(self) -> Snapshot:
        """The newest one."""
        return self._onlooker.snapshot

    def look(self) -> bool:
        """Look at the run; returns whether Redis was there."""
        self._is_away = not self._onlooker.look()
        return not self._is_away

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: none of it is alive, or its own Redis is gone, after it was told to end.

        Or it was alive, and all of it has ended in order.
        """
        if self.stop_reason and (self._is_away or not self.snapshot.alive):
            return True
        return self._was_alive and not self._knows_anybody

    def ask_to_stop(self) -> bool:
        """Ask the run to end, with `surreal top` for a reason; returns whether Redis took it."""
        try:
            registry.request_stop(self._client, "surreal top")
        except (RedisError, SurrealError) as error:
            logger.debug("the run was not told: %s", error)
            return False
        return True

    def limits(self) -> RunLimits:
        """What ends the run, by its configuration; nothing, if it has not registered one."""
        try:
            return RunLimits.of(registry.stored_config(self._client))
        except ConfigError as error:
            logger.debug("no limits are known: %s", error)
            return RunLimits()

    def history(self, now_s: float) -> History:
        """The rounds of evaluation before now, as far as Redis has them.

        Args:
            now_s: by the clock of whoever adds to it.
        """

        def read() -> Any:
            pipeline = self._client.redis.pipeline(transaction=False)
            pipeline.time()
            pipeline.xrevrange(self._client.run_keys.scores, count=_MAX_ROUNDS)
            return pipeline.execute()

        (seconds, _), entries = self._client.retry(read, what="read the scores")
        history = History()
        for _, fields in reversed(entries):
            if (found := _round(fields.get(b"round", b""))) is not None:
                number, time, mean_return = found
                history.add_round(mean_return, number + 1, now_s - (seconds - time))
        return history

    def _take(self) -> Snapshot:
        keys = self._client.run_keys

        def read() -> Any:
            pipeline = self._client.redis.pipeline(transaction=False)
            pipeline.time()
            pipeline.hgetall(keys.processes)
            pipeline.get(keys.stop)
            return pipeline.execute()

        answer = self._client.attempt(read, what="look at the run")
        if answer is None:
            raise RedisUnavailableError("no answer", address=self._client.address)
        (seconds, micros), beats, stop = answer
        snapshot = summarize_processes(parse_heartbeats(beats.values(), now_s=seconds + micros / 1e6))
        self.stop_reason = stop.decode(errors="replace") if stop else self.stop_reason if not snapshot.alive else ""
        self._was_alive |= bool(snapshot.alive)
        self._knows_anybody = bool(snapshot.processes)
        return snapshot


def _round(text: bytes) -> tuple[int, float, float] | None:
    """Number, time and mean return of a round; None if the text is none. A mean that is no number is NaN."""
    try:
        data = json.loads(text)
        mean_return = data["mean_return"]
        found = int(data["round"]), float(data["time"]), math.nan if mean_return is None else float(mean_return)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return found if math.isfinite(found[1]) else None


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
