"""Ends a small program of your own as a person expects it: Ctrl-C and what Surreal explains cost one line each."""

from __future__ import annotations

import sys
from collections.abc import Callable

from surreal.errors import SurrealError
from surreal.utils.logs import setup_logging

#: What a shell gives a program that SIGINT ended.
INTERRUPTED = 130


def run_program(name: str, body: Callable[[], object], *, log_level: str = "INFO") -> int:
    """Call `body`, with the log on stderr, and give the program's exit code.

        sys.exit(run_program("agent", main))

    Args:
        name: of the program, shown in every line of the log.
        body: closes what it has opened, in `finally` or a `with`, also at Ctrl-C.
        log_level: least severe level that is shown.

    Returns:
        0 when it has ended, 1 after an error that Surreal explains, 130 after Ctrl-C. Other exceptions are a program's
        own, and are shown in full.
    """
    setup_logging(log_level, name)
    try:
        body()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except SurrealError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0
