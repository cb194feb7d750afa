"""How an error looks to the person at the command line: one clear sentence, no traceback."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path

from surreal.errors import OS_REMEDIES, SurrealError, ThreadFailedError, describe_os_error
from surreal.utils.liveness.pulse import own_frames

_PACKAGE = Path(__file__).parents[2]


def error_line(error: BaseException) -> str:
    """One line for an error; of one that is not ours also its type, where it came from, and the notes it was given."""
    notes = getattr(error, "__notes__", ())
    while isinstance(error, ThreadFailedError) and error.__cause__ is not None:
        error = error.__cause__
    message = " ".join(str(error).split())
    if isinstance(error, SurrealError):
        return message
    frames = own_frames(traceback.extract_tb(error.__traceback__))
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    if isinstance(error, OSError) and (error.errno in OS_REMEDIES or error.filename):
        is_ours = not frames or Path(frames[-1].filename).is_relative_to(_PACKAGE)
        return "; ".join([describe_os_error(error) + ("" if is_ours else place), *notes])
    sentence = f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"
    return "; ".join([sentence, *notes])


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
