"""Ends of runs: reason, exit code, `result.json`, and errors as one line. docs/endings.md has the table."""

from __future__ import annotations

import re
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surreal.base import errors
from surreal.base.system.health import own_frames

if TYPE_CHECKING:  # it would double the time before `surreal run` begins
    from surreal.config import Config


class ExitCode(IntEnum):
    """Exit codes of commands; 128 + N after signal N."""

    OK = 0  #: a goal or limit was reached, or `surreal stop` was called
    FAILED = 1
    USAGE = 2  #: wrong arguments, a wrong configuration
    BUSY = 3  #: the folder or the run belongs to another process, which is alive
    RANK_KILLED = 4  #: a signal ended one of the learner's ranks; the launcher restarts all of them
    BROKEN = 5  #: `surreal chaos` found a broken promise
    NAME_LOST = 6  #: another process took its name; the launcher restarts it as a stand-by
    NO_MEMORY = 7  #: the system gave no memory; the launcher restarts it, as after a kill for the same reason
    HANGUP = 128 + signal.SIGHUP  #: also if the output was closed
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


class Ending(NamedTuple):
    """The reason for the end of a run, and its exit code."""

    reason: str
    exit_code: ExitCode = ExitCode.OK

    @property
    def status(self) -> str:
        """finished, failed or interrupted."""
        if self.exit_code is ExitCode.OK:
            return "finished"
        return "interrupted" if self.exit_code > 128 else "failed"


class Counts(NamedTuple):
    """Progress of a run at its end."""

    env_steps: int = 0
    updates: int = 0
    version: int = 0
    restarts: int = 0
    skipped_updates: int = 0  #: updates with gradients that were not finite
    compile_cpu_s: float = 0.0  #: that compiling updates took
    compile_saving_s: float = 0.0  #: CPU time that this was expected to save


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command that an exception ends."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, errors.BusyError):
        return ExitCode.BUSY
    if isinstance(error, errors.RankError) and error.is_killed:
        return ExitCode.RANK_KILLED
    if isinstance(error, errors.NameLostError):
        return ExitCode.NAME_LOST
    cause = _cause(error)
    if isinstance(cause, MemoryError) or re.search("allocate memory|can't start new thread", str(cause)):
        return ExitCode.NO_MEMORY
    return ExitCode.USAGE if isinstance(error, errors.ConfigError) else ExitCode.FAILED


def result_of(
    config: Config,
    run: str,
    ending: Ending | None,
    *,
    started: float,
    time_s: float = 0.0,
    counts: Counts = Counts(),  # noqa: B008 - it is immutable
    best: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the content of `result.json`; without an ending, the run continues. It began or was resumed at `started`."""
    return {
        "run": run,
        "name": config.name,
        "seed": config.seed,
        "status": "running" if ending is None else ending.status,
        "reason": None if ending is None else ending.reason,
        "exit_code": None if ending is None else int(ending.exit_code),
        "env_steps": counts.env_steps,
        "updates": counts.updates,
        "skipped_updates": counts.skipped_updates,
        "compile": {
            "mode": _compile_mode(config),
            "cpu_s": round(counts.compile_cpu_s, 1),
            "expected_saving_s": round(counts.compile_saving_s, 1),
        },
        "version": counts.version,
        "time_s": round(time_s, 3),
        "started": started,
        "restarts": counts.restarts,
        "best": best,
    }


_PACKAGE = Path(__file__).parents[2]


def _compile_mode(config: Config) -> str:
    mode = config.learner.args.get("compile", config.learner.compile)
    return str(False if mode == "auto" and config.run.deterministic else mode).lower()


def error_line(error: BaseException) -> str:
    """Describe an error in one line: its message; if it is not Surreal's, also its type, line of code and notes."""
    notes, error = getattr(error, "__notes__", ()), _cause(error)
    message = " ".join(str(error).split())
    if isinstance(error, errors.SurrealError):
        return message
    frames = own_frames(traceback.extract_tb(error.__traceback__))
    # The innermost call in the user's code, else the innermost one outside Python's library.
    frame = next(filter(_is_users, reversed(frames)), frames[-1] if frames else None)
    code = f": {frame.line}" if frame is not None and frame.line and _is_users(frame) else ""
    place = "" if frame is None else f" ({Path(frame.filename).name} line {frame.lineno}{code})"
    if isinstance(error, OSError) and (error.errno in errors.OS_REMEDIES or error.filename):
        is_ours = frame is None or Path(frame.filename).is_relative_to(_PACKAGE)
        return "; ".join([errors.describe_os_error(error) + ("" if is_ours else place), *notes])
    sentence = f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"
    return "; ".join([sentence, *notes])


def _is_users(frame: traceback.FrameSummary) -> bool:
    """Whether a call is in the user's code: neither Surreal's nor an installed package's."""
    path = Path(frame.filename)
    is_installed = bool({"site-packages", "dist-packages"}.intersection(path.parts))
    return not (path.is_relative_to(_PACKAGE) or is_installed or frame.filename.startswith("<"))


def is_expected(error: BaseException) -> bool:
    """Whether Surreal explains the error, so that its traceback adds nothing."""
    return isinstance(_cause(error), errors.SurrealError)


def _cause(error: BaseException) -> BaseException:
    """Return the exception that ended a thread, or the error itself."""
    while isinstance(error, errors.ThreadFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def print_error(error: BaseException) -> None:
    """Write `error: ...` to stderr, unless that is closed."""
    with suppress(OSError):
        sys.stderr.write(f"error: {error_line(error)}\n")
        sys.stderr.flush()
