"""The loop of a sweep: it starts runs as they fit, collects those that ended, judges trials, and drains at the end.

The state of a run is in its folder, and the end of a trial in `trials.jsonl`; nothing else is remembered. So a sweep
that was killed at any moment continues with the same loop: a finished run counts, an interrupted run is resumed, and a
run that never began is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.plugins.recorded.listing import read_run
from surreal.plugins.sweep.definition import Definition
from surreal.plugins.sweep.folder import End, SweepFolder, Trial, TrialFile
from surreal.plugins.sweep.processes import LaunchedRun, Launching, Room, fits, need_of
from surreal.plugins.sweep.proposing import Judge, Proposer, TrialSeed
from surreal.plugins.sweep.view import SweepView
from surreal.run.process.ending import Ending, ExitCode
from surreal.run.process.interrupts import Interrupts
from surreal.run.process.run_folder import RunFolder

_POLL_INTERVAL_S = 0.2
_SHOW_INTERVAL_S = 2.0
#: Number of restarts of a run that ended before its limit without failing, such as one that was killed.
_RESTARTS = 3
_KILL_WAIT_S = 5.0
_TELL_INTERVAL_S = 5.0


@dataclass
class RunningRun:
    """A run that this process has started."""

    process: LaunchedRun
    need: Room
    run: str  #: id
    folder: Path
    told_s: float | None = None  #: time of the last request to stop, because its trial has ended


class Sweeping:
    """Drives a sweep to its end."""

    def __init__(
        self,
        definition: Definition,
        folder: SweepFolder,
        trials: TrialFile,
        proposer: Proposer,
        runner: Launching,
        *,
        room: Room,
        view: SweepView,
        keep: Callable[[], object] = lambda: None,
    ) -> None:
        self._definition, self._config = definition, definition.config
        self._folder, self._trials, self._proposer = folder, trials, proposer
        self._judge = Judge(definition.config, folder, proposer)
        self._runner, self._room, self._view, self._keep = runner, room, view, keep
        self._running: dict[TrialSeed, RunningRun] = {}
        self._restarts: dict[TrialSeed, int] = {}
        self._failures: dict[TrialSeed, str] = {}
        self._needs: dict[int, Room] = {}
        self._has_all = False
        self._shown_s = 0.0

    def execute(self, interrupts: Interrupts) -> Ending:
        """Run trials until all are over, too many have failed, or an interrupt comes; return the ending.

        Raises:
            SurrealError: it cannot continue; its runs have drained.
        """
        try:
            try:
                while self.step() and not interrupts.is_draining and not self._has_failed:
                    time.sleep(_POLL_INTERVAL_S)
            finally:
                self._drain(interrupts)
        except KeyboardInterrupt:
            self._kill()
        if self._has_failed:
            count = len(self._failed)
            return Ending(f"{count} trials failed, max_failures is {self._config.max_failures}", ExitCode.FAILED)
        if self._is_done:
            if not any(trial.end and trial.end.status == "finished" for trial in self._trials.trials):
                return Ending("no trial has finished", ExitCode.FAILED)
            return Ending("all trials are over")
        return interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)

    def step(self) -> bool:
        """Collect ended runs, start as many as fit, and return whether anything is left to do."""
        self._keep()
        self._collect(is_draining=False)
        self._end_trials()
        if not self._has_failed:
            self._start()
        self._show()
        return bool(self._running) or not self._is_done

    # -- what ended ------------------------------------------------------------------------------------------------

    def _collect(self, *, is_draining: bool) -> None:
        """Remove runs whose processes have ended, and record ends that their folders do not explain."""
        for seat, run in list(self._running.items()):
            code = run.process.poll()
            if code is None:
                continue
            del self._running[seat]
            status = read_run(run.folder).status
            if status not in ("finished", "failed") and not is_draining and run.told_s is None:
                self._record_unexplained_end(seat, code, run.process.last_words())
            if status == "failed" or seat in self._failures or run.told_s is not None:
                self._runner.forget(run.run)

    def _record_unexplained_end(self, seat: TrialSeed, code: int, words: str) -> None:
        """Record the end of a run without a result: it was refused, was killed, or could not reach its Redis."""
        if code == ExitCode.USAGE:
            self._failures[seat] = words
            return
        self._restarts[seat] = self._restarts.get(seat, 0) + 1
        if self._restarts[seat] > _RESTARTS:
            self._failures[seat] = f"it ended {_RESTARTS + 1} times before its limit, last with {code}: {words}"

    def _end_trials(self) -> None:
        """End the trials that are finished, failed or hopeless, and stop the runs of the last."""
        for trial in self._trials.open:
            if (end := self._judge.end_of(trial, self._failures)) is not None:
                self._end(trial, end)
        now = time.monotonic()
        for seat, run in self._running.items():
            over = self._trials.trials[seat.trial].end
            if over is None or (run.told_s is not None and now - run.told_s < _TELL_INTERVAL_S):
                continue
            if read_run(run.folder).status not in ("finished", "failed"):
                run.told_s = now  # repeated later, because a run that is just starting may have missed it
                self._runner.stop(run.run, over.reason)

    def _end(self, trial: Trial, end: End) -> None:
        self._trials.end(trial, end)
        self._proposer.tell(trial)
        self._view.ended(trial)

    # -- what begins -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start as many runs as fit: first the seeds of trials that have begun, then new trials."""
        while True:
            needs = [run.need for run in self._running.values()]
            waiting = next(self._waiting(), None)
            if waiting is None:
                # The settings of the next trial are not known yet: it may need as much as the last one.
                need = next(reversed(self._needs.values()), Room(1, 0))
                if self._has_all or not fits(need, needs, self._room, self._config.parallel):
                    return
                settings = self._proposer.ask(len(self._trials.trials))
                self._has_all = settings is None
                if settings is not None:
                    self._view.begun(self._trials.add(settings))
                if self._has_failed:
                    return
                continue
            trial, seed = waiting
            if not fits(self._needs[trial.number], needs, self._room, self._config.parallel):
                return
            self._launch(trial, seed)

    def _waiting(self) -> Iterator[tuple[Trial, int]]:
        """Yield runs that could be started now."""
        for trial in self._trials.open:
            if trial.number not in self._needs and not self._check(trial):
                continue
            for seed in self._config.seeds:
                # A run that this process did not start is left over from a killed sweep, and drains.
                if TrialSeed(trial.number, seed) not in self._running:
                    status = read_run(self._folder.run_folder(trial, seed)).status
                    if status not in ("finished", "failed", "running"):
                        yield trial, seed

    def _check(self, trial: Trial) -> bool:
        """Whether a trial's settings are valid; if not, the trial has failed."""
        try:
            config = self._definition.run_config(trial.settings, base=str(self._folder.base))
            self._needs[trial.number] = need_of(config)
        except ConfigError as error:
            self._end(trial, End("failed", reason=str(error)))
            return False
        return True

    def _launch(self, trial: Trial, seed: int) -> None:
        folder = self._folder.run_folder(trial, seed)
        run = f"{self._trials.sweep}-{self._folder.label(trial, seed)}"
        if RunFolder(folder).config_path.exists():
            arguments = ["--resume"]
        else:
            overrides = self._definition.overrides(trial.settings, seed)
            arguments = [str(self._folder.base), *(part for text in overrides for part in ("--set", text))]
        arguments += ["--run", run, "--run-dir", str(folder), "--quiet"]
        process = self._runner.start(arguments, self._folder.console(trial, seed))
        self._running[TrialSeed(trial.number, seed)] = RunningRun(process, self._needs[trial.number], run, folder)

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def _failed(self) -> list[Trial]:
        return [trial for trial in self._trials.trials if trial.end is not None and trial.end.status == "failed"]

    @property
    def _has_failed(self) -> bool:
        return len(self._failed) > self._config.max_failures

    @property
    def _is_done(self) -> bool:
        return self._has_all and not self._trials.open

    def _drain(self, interrupts: Interrupts) -> None:
        """Interrupt all runs, and wait until they have drained; they can be resumed."""
        for run in self._running.values():
            run.process.interrupt()
        is_hurried = False
        while self._running:
            self._collect(is_draining=True)
            if interrupts.is_hurried and not is_hurried:
                is_hurried = True
                for run in self._running.values():
                    run.process.interrupt()
            self._show("draining: the runs write their checkpoints; Ctrl-C again hurries them")
            time.sleep(_POLL_INTERVAL_S)
        self._end_trials()

    def _kill(self) -> None:
        """Kill all runs at once: the third Ctrl-C kills the processes of each run."""
        for run in self._running.values():
            run.process.interrupt()
        deadline = time.monotonic() + _KILL_WAIT_S
        while any(run.process.poll() is None for run in self._running.values()) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)
        for run in self._running.values():
            run.process.kill()
        self._running.clear()

    def _show(self, phase: str = "") -> None:
        now = time.monotonic()
        if now - self._shown_s < _SHOW_INTERVAL_S:
            return
        self._shown_s = now
        runs = [read_run(run.folder) for run in self._running.values()]
        if not runs and self._trials.open and not phase:
            phase = "waiting for runs that an earlier process of this sweep left behind"
        self._view.show(runs, phase)
