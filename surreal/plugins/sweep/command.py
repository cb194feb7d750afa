"""A whole sweep, from its file to its results: a definition, a folder, a Redis and the loop."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from surreal.base.errors import ConfigError, StoppedError
from surreal.config import load_config
from surreal.config.classes import add_python_path
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.owners import Keeper
from surreal.plugins.sweep.definition import Definition, check_settings, load_definition
from surreal.plugins.sweep.folder import OPTUNA_NAME, SWEEPS_FOLDER, SweepFolder, Trial
from surreal.plugins.sweep.processes import Launching, Room, need_of, num_at_once, room_here
from surreal.plugins.sweep.proposing import Grid, OptunaSearch, Proposer, require_optuna
from surreal.plugins.sweep.sweeping import Sweeping
from surreal.plugins.sweep.view import SweepView, describe_end, ranking
from surreal.run.process.ending import Ending, ExitCode
from surreal.run.process.finding import open_client
from surreal.run.process.interrupts import Interrupts

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_REDIS_RESTARTS = 5
_SHOWN_FAILURES = 5


@dataclass(frozen=True)
class SweepOutcome:
    """Trials and ending of a sweep."""

    folder: Path
    trials: list[Trial]
    ending: Ending
    resume_command: str

    def last_words(self) -> list[str]:
        """Return the lines below the table of results."""
        failed = [trial for trial in self.trials if trial.end is not None and trial.end.status == "failed"]
        words = [f"trial {trial.number} {describe_end(trial)}" for trial in failed[:_SHOWN_FAILURES]]
        if len(failed) > _SHOWN_FAILURES:
            words.append(f"and {len(failed) - _SHOWN_FAILURES} more failed, see trials.jsonl")
        if self.ending.exit_code is not ExitCode.FAILED:
            words.append(f"ended: {self.ending.reason}")
        if ranked := ranking(self.trials):
            best = sorted((self.folder / "runs").glob(f"{ranked[0].number:03d}-s*/app.yaml"))
            where = f"; to train it again: surreal run {_short(best[0])}" if best else ""
            words.append(f"the best is trial {ranked[0].number}{where}")
        words.append(f"results in {self.folder}: trials.jsonl, and a folder for each run in runs")
        words.append(f"curves and scores on a page: surreal dashboard {_short(self.folder)}")
        if self.ending.exit_code:
            words.append(f"to continue: {self.resume_command}")
        return words


def check_sweep(file: Path) -> str:
    """Check a sweep without starting or writing anything, and describe it in a sentence."""
    from surreal.run.lockstep.check import check_run

    definition = load_definition(file)
    if definition.config.search is not None:
        require_optuna()
    settings = check_settings(definition)
    config = definition.run_config(settings[0])
    add_python_path(config.python_path)
    for each in settings:
        check_run(definition.run_config(each))
    count, seeds = definition.num_trials, len(definition.config.seeds)
    at_once = min(num_at_once(need_of(config), room_here(), definition.config.parallel), count * seeds)
    of_seeds = "" if seeds == 1 else f" of {seeds} seeds"
    what = f"{count:,} trials{of_seeds}, {at_once} run{'s' if at_once > 1 else ''} at once"
    return f"{definition.config.name} can run: {what}; nothing was started or written"


def run_sweep(
    file: Path | None,
    console: Console,
    interrupts: Interrupts,
    *,
    path: Path | None = None,
    redis: str | None = None,
    resume: bool = False,
    is_quiet: bool = False,
) -> SweepOutcome:
    """Run a sweep until it is over or interrupted; the caller has installed `interrupts`.

    Raises:
        ConfigError: its definition or its options are wrong; nothing was written.
        BusyError: another process drives the sweep.
        StoppedError: it was interrupted before it began.
        SurrealError: it cannot continue; its runs have drained, and it can be resumed.
    """
    given = None if file is None else load_definition(file)
    if given is None and not (resume and path):
        raise ConfigError("name a sweep's file, or continue a sweep with --resume --dir DIR")
    folder = SweepFolder(path or SWEEPS_FOLDER / (given.config.name if given else ""))
    if not resume:
        _require_new(folder)
        if not is_quiet:
            console.print("checking what the runs need", highlight=False)
        _check_apart(file)
        if interrupts.ending is not None:
            raise StoppedError("stopped before the sweep began")
    with ExitStack() as stack:
        folder.claim()
        stack.callback(folder.release)
        if resume:
            definition, trials = folder.resume(given)
        elif given is not None:
            _require_new(folder)
            definition, trials = given, folder.begin(given)
        room = room_here()
        address, keep = _connect(redis, definition, folder, room, stack)
        view = stack.enter_context(SweepView(console, trials.trials, definition.num_trials, is_quiet=is_quiet))
        proposer: Proposer = Grid(definition)
        if definition.config.search is not None:
            proposer = OptunaSearch(definition, trials.trials, folder.path / OPTUNA_NAME)
        sweeping = Sweeping(definition, folder, trials, proposer, Launching(address), room=room, view=view, keep=keep)
        ending = sweeping.execute(interrupts)
    words = ["surreal", "sweep", *([str(file)] if file else []), "--resume"]
    words += ["--dir", _short(folder.path)] if path else []
    return SweepOutcome(folder.path, trials.trials, ending, shlex.join(words))


def _require_new(folder: SweepFolder) -> None:
    if folder.holds_sweep:
        raise ConfigError(
            f"{folder.path} already has a sweep; --resume continues it, --dir DIR begins another", key="--dir"
        )


def _check_apart(file: Path | None) -> None:
    """Check the sweep in a separate process, because this one loads neither torch nor users' classes."""
    command = [sys.executable, "-m", "surreal", "sweep", str(file), "--check"]
    answer = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False
    )
    if answer.returncode != 0:
        lines = [line for line in answer.stderr.splitlines() if line.strip()] or ["the check failed without a message"]
        raise ConfigError(lines[-1].removeprefix("error: "))


def _connect(
    given: str | None, definition: Definition, folder: SweepFolder, room: Room, stack: ExitStack
) -> tuple[str, Callable[[], None]]:
    """Return the address of all runs' Redis, and a function that keeps it alive; start a server if none is named."""
    base = load_config(folder.base, definition.overrides({}))
    address = given or base.redis.address
    if address is not None:
        with open_client(address) as client:
            client.check_server(timeout_s=_CONNECT_TIMEOUT_S)
        return address, lambda: None
    size = max(room.bytes, (definition.config.parallel or 1) * base.own_redis_bytes)
    server = EmbeddedRedis(maxmemory_bytes=size)
    stack.callback(server.stop)
    server.start()
    return server.address, Keeper(server, _REDIS_RESTARTS).keep


def _short(path: Path) -> str:
    """Return a path relative to the current folder if it is inside."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
