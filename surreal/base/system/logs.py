"""Console logging of a process: one line for each record on stderr, set up once by the command line.

Full tracebacks go to the run's folder (see `surreal.distributed.telemetry`); the console shows them at level DEBUG.
"""

from __future__ import annotations

import logging
import sys
import time

#: Libraries that log too much, with the least severe level of theirs that is shown.
NOISY_LOGGERS = {
    **dict.fromkeys(("PIL", "asyncio", "fsspec", "matplotlib", "numba", "urllib3"), logging.INFO),
    "websockets": logging.WARNING,  # it logs every connection at INFO
}

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class ConsoleFormatter(logging.Formatter):
    """Formats a record as one line: `12:34:56.789 INFO agent-0 message`.

    Args:
        name: of the process.
        show_traceback: print exceptions in full below their line.
    """

    def __init__(self, name: str, *, show_traceback: bool = False) -> None:
        super().__init__()
        self._name = name
        self._show_traceback = show_traceback

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = " ".join(record.getMessage().split())
        line = f"{clock}.{int(record.msecs):03d} {record.levelname} {self._name} {message}"
        if record.exc_info and record.exc_info[1] is not None:
            if self._show_traceback:
                return f"{line}\n{self.formatException(record.exc_info)}"
            error = record.exc_info[1]
            line += f" ({type(error).__name__}: {' '.join(str(error).split())})"
        return line


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

    Args:
        level: least severe level that is shown and shipped; DEBUG also shows tracebacks.
        name: of the process, shown in every line.
        console_level: least severe level that the console shows; None is `level`.

    Raises:
        ValueError: not a level.
    """
    number = level_number(level)
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _ConsoleHandler):
            root.removeHandler(handler)
            handler.close()
    console = _ConsoleHandler()
    console.setFormatter(ConsoleFormatter(name, show_traceback=number <= logging.DEBUG))
    console.setLevel(number if console_level is None else level_number(console_level))
    root.addHandler(console)
    root.setLevel(number)
    for noisy, least in NOISY_LOGGERS.items():
        logging.getLogger(noisy).setLevel(max(number, least))
    logging.captureWarnings(True)
