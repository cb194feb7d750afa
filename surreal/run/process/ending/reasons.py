"""How a run ends: why, with which exit code, and what `result.json` says. The table is in docs/endings.md."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from surreal.base.errors import BusyError, ConfigError, NameLostError, RankError
from surreal.config import Config


class ExitCode(IntEnum):
    """What a command gives to the shell; from 129 on, 128 and the number of the signal."""

    OK = 0  #: it reached its goal or a limit, or was told to end by `surreal stop`
    FAILED = 1
    USAGE = 2  #: wrong arguments, a wrong configuration
    BUSY = 3  #: the folder or the run belongs to another process, which is alive
    RANK_KILLED = 4  #: a signal ended one of the learner's ranks; the launcher starts all of them again
    BROKEN = 5  #: `surreal chaos` found that something did not hold
    NAME_LOST = 6  #: another process has taken its name in the run; the launcher starts it again, as a stand-by
    HANGUP = 128 + signal.SIGHUP  #: also if the output was closed
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


class Ending(NamedTuple):
    """Why a run ends."""

    reason: str
    exit_code: ExitCode = ExitCode.OK

    @property
    def status(self) -> str:
        """finished, failed or interrupted."""
        if self.exit_code is ExitCode.OK:
            return "finished"
        return "interrupted" if self.exit_code > 128 else "failed"


class Counts(NamedTuple):
    """How far a run came."""

    env_steps: int = 0
    updates: int = 0
    version: int = 0
    restarts: int = 0
    skipped_updates: int = 0  #: their gradients were not finite


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code of a command that an exception ends."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, BusyError):
        return ExitCode.BUSY
    if isinstance(error, RankError) and error.is_killed:
        return ExitCode.RANK_KILLED
    if isinstance(error, NameLostError):
        return ExitCode.NAME_LOST
    return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED


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
    """The content of `result.json`.

    Args:
        config: of the run.
        run: its id.
        ending: None while it goes on.
        started: when it began or was resumed, s since 1970.
        time_s: how long it took.
        counts: how far it came.
        best: the best round of its evaluation.
    """
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
        "version": counts.version,
        "time_s": round(time_s, 3),
        "started": started,
        "restarts": counts.restarts,
        "best": best,
    }
