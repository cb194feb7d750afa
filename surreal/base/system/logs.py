"""Console log of a process, and its waits: a component that waits logs the reason once, and `WAITS` lists it.

The command line sets up the log: one line for each record on stderr. Full tracebacks go to the run's folder (see
`surreal.distributed.telemetry`), and the console shows them at level DEBUG.

Waits belong to the process, as its log does. Any component adds to `WAITS` through a `WaitNotice`; the heartbeat, the
health file and the watchdog read it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from surreal.base.errors import ConfigError

#: Libraries that log too much, with the least severe level that is shown.
NOISY_LOGGERS = {
    **dict.fromkeys(("PIL", "asyncio", "fsspec", "matplotlib", "numba", "urllib3"), logging.INFO),
    "websockets": logging.WARNING,  # it logs every connection at INFO
}

FORMAT_VARIABLE = "SURREAL_LOG_FORMAT"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class ConsoleFormatter(logging.Formatter):
    """Formats a record as one line: `12:34:56.789 INFO agent-0 message`; tracebacks go below it, if they are shown."""

    def __init__(self, name: str, *, show_traceback: bool = False) -> None:
        super().__init__()
        self._name = name
        self._show_traceback = show_traceback

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = " ".join(record.getMessage().split())
        line = f"{clock}.{int(record.msecs):03d} {record.levelname} {self._name} {message}"
        if record.exc_info and record.exc_info[1] is not None:
            if self._show_traceback:
                return f"{line}\n{self.formatException(record.exc_info)}"
            error = record.exc_info[1]
            line += f" ({type(error).__name__}: {' '.join(str(error).split())})"
        return line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line, for what collects the logs of many processes.

    Its keys are `time` (ISO 8601, UTC), `level`, `process`, `logger` and `message`; after an exception, also `error`
    and `traceback`.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        made = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            made |= {"error": f"{type(error).__name__}: {error}", "traceback": self.formatException(record.exc_info)}
        return json.dumps(made, ensure_ascii=False)


class _ConsoleHandler(logging.Handler):
    """Writes to the current `sys.stderr`, which a live display replaces after the set-up."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def level_number(level: str | int) -> int:
    """Return the number of a level's name in any case, or raise `ValueError`."""
    if isinstance(level, int):
        return level
    if level.upper() not in LEVELS:
        raise ValueError(f"log level is {level!r}; it must be one of {', '.join(LEVELS)}")
    return int(getattr(logging, level.upper()))


def setup_logging(level: str | int = "INFO", name: str = "surreal", *, console_level: str | int | None = None) -> None:
    """Send this process's log to stderr, one line for each record; calling it again replaces the earlier set-up.

    DEBUG also shows tracebacks. The console's level is `level`, unless it is given. With `$SURREAL_LOG_FORMAT` json,
    lines are JSON; it is text or json, else `ConfigError`.
    """
    form = os.environ.get(FORMAT_VARIABLE) or "text"
    if form not in ("text", "json"):
        raise ConfigError(f"${FORMAT_VARIABLE} is {form!r}; it must be text or json")
    number = level_number(level)
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _ConsoleHandler):
            root.removeHandler(handler)
            handler.close()
    console = _ConsoleHandler()
    text = ConsoleFormatter(name, show_traceback=number <= logging.DEBUG)
    console.setFormatter(JsonFormatter(name) if form == "json" else text)
    console.setLevel(number if console_level is None else level_number(console_level))
    root.addHandler(console)
    root.setLevel(number)
    for noisy, least in NOISY_LOGGERS.items():
        logging.getLogger(noisy).setLevel(max(number, least))
    logging.captureWarnings(True)


#: Waits shorter than this are not reported, s.
PATIENCE_S = 2.0
#: Least time between two records of one notice, s, so that repeated waits do not fill the log.
_QUIET_S = 600.0
#: A wait that was not renewed for this long has ended, s.
_STALE_S = 15.0


class _Wait(NamedTuple):
    text: str
    began_s: float
    told_s: float
    thread_id: int
    is_idle: bool


class Waits:
    """The current waits of a process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[Hashable, _Wait] = {}

    def note(self, key: Hashable, text: str, *, began_s: float | None = None, is_idle: bool = False) -> None:
        """Record a wait on this thread, which `key` tells from others, for a reason such as "waiting for the learner";
        called repeatedly while it lasts. It began with the first note, or earlier, by the clock, at `began_s`. An idle
        process is ready and has nothing to do.
        """
        now, known = self._clock(), self._waits.get(key)
        if began_s is None:
            began_s = now if known is None else known.began_s
        self._waits[key] = _Wait(text, began_s, now, threading.get_ident(), is_idle)

    def end(self, key: Hashable) -> None:
        self._waits.pop(key, None)

    def texts(self, *, with_idle: bool = True) -> list[str]:
        """List the reasons of waits of two seconds or more, oldest first."""
        now = self._clock()
        waits = (wait for wait in self._current() if with_idle or not wait.is_idle)
        return list(dict.fromkeys(wait.text for wait in waits if now - wait.began_s >= PATIENCE_S))

    def is_waiting(self, thread_id: int) -> bool:
        """Whether a thread is in a wait that was noted."""
        return any(wait.thread_id == thread_id for wait in self._current())

    def _current(self) -> list[_Wait]:
        now = self._clock()
        for key, wait in list(self._waits.items()):
            if now - wait.told_s > _STALE_S:
                self._waits.pop(key, None)
        return sorted(self._waits.copy().values(), key=lambda wait: wait.began_s)


#: Waits of this process.
WAITS = Waits()


@dataclass(eq=False)
class WaitNotice:
    """Logs the reason of a wait as a warning after two seconds.

        notice = WaitNotice(logger)
        while not is_there():
            notice.tell("waiting for the learner, at most %.0f s", timeout_s)
            time.sleep(0.1)
        notice.end()

    The first wait begins with this object.
    """

    logger: logging.Logger
    level: int = logging.WARNING  #: level of the record; a usual wait needs no warning
    is_idle: bool = False  #: whether this process is ready and has nothing to do
    clock: Callable[[], float] = time.monotonic
    waits: Waits = WAITS  #: lists the wait while it lasts

    def __post_init__(self) -> None:
        self._quiet_until_s = -float("inf")
        #: when the wait began, by the clock; None without one, so that there is nothing to end
        self.began_s: float | None = self.clock()

    def begin(self) -> None:
        """Begin a wait; `tell` begins one if there is none."""
        self.end()
        self.began_s = self.clock()

    def tell(self, message: str, *args: object) -> None:
        """Report the wait if it has lasted long enough; called repeatedly while it lasts."""
        now = self.clock()
        if self.began_s is None:
            self.began_s = now
        if now - self.began_s < PATIENCE_S:
            return
        self.waits.note(self, message % args, began_s=self.began_s, is_idle=self.is_idle)
        if now >= self._quiet_until_s:
            self._quiet_until_s = now + _QUIET_S
            self.logger.log(self.level, message, *args, extra={"is_wait": True})

    def end(self) -> None:
        if self.began_s is not None:
            self.began_s = None
            self.waits.end(self)
