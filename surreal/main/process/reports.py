"""How an error looks to the person at the command line: one clear sentence, no traceback."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path

from surreal.errors import SurrealError, ThreadFailedError


def error_line(error: BaseException) -> str:
    """One line for an error; of one that is not ours also its type and where it came from."""
    while isinstance(error, ThreadFailedError) and error.__cause__ is not None:
        error = error.__cause__
    message = " ".join(str(error).split())
    if isinstance(error, SurrealError):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"


def is_expected(error: BaseException) -> bool:
    """Whether an error is one that Surreal explains itself, so that its traceback says nothing more."""
    while isinstance(error, ThreadFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, SurrealError)


def print_error(error: BaseException) -> None:
    """Write `error: ...` to stderr, if anybody still reads it."""
    with suppress(OSError):
        sys.stderr.write(f"error: {error_line(error)}\n")
        sys.stderr.flush()
