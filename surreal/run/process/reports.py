"""How an error looks to the person at the command line: one clear sentence, no traceback."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path

from surreal.base.errors import OS_REMEDIES, SurrealError, ThreadFailedError, describe_os_error
from surreal.base.liveness.pulse import own_frames

_PACKAGE = Path(__file__).parents[2]


def error_line(error: BaseException) -> str:
    """Give one line for an error: its message, and for a foreign one its type, the line of code, and its notes."""
    notes = getattr(error, "__notes__", ())
    while isinstance(error, ThreadFailedError) and error.__cause__ is not None:
        error = error.__cause__
    message = " ".join(str(error).split())
    if isinstance(error, SurrealError):
        return message
    frame = _frame_to_show(error)
    place = "" if frame is None else f" ({Path(frame.filename).name} line {frame.lineno}{_code_of(frame)})"
    if isinstance(error, OSError) and (error.errno in OS_REMEDIES or error.filename):
        is_ours = frame is None or Path(frame.filename).is_relative_to(_PACKAGE)
        return "; ".join([describe_os_error(error) + ("" if is_ours else place), *notes])
    sentence = f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"
    return "; ".join([sentence, *notes])


def _frame_to_show(error: BaseException) -> traceback.FrameSummary | None:
    """Give the innermost call in the user's own code; without any, the innermost one outside of Python's library."""
    frames = own_frames(traceback.extract_tb(error.__traceback__))
    return next(filter(_is_users, reversed(frames)), frames[-1] if frames else None)


def _code_of(frame: traceback.FrameSummary) -> str:
    return f": {frame.line}" if frame.line and _is_users(frame) else ""


def _is_users(frame: traceback.FrameSummary) -> bool:
    """Whether a call is neither Surreal's nor an installed package's."""
    path = Path(frame.filename)
    is_installed = bool({"site-packages", "dist-packages"}.intersection(path.parts))
    return not (path.is_relative_to(_PACKAGE) or is_installed or frame.filename.startswith("<"))


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
