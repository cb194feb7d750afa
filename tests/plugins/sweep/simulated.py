"""Runs of a sweep without processes: they leave what a run leaves in its folder, and can be cut off anywhere.

Each look at a run (`poll`) takes it a step further: it begins, is evaluated some times, and ends.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from surreal.plugins.sweep.definition import Definition, load_definition
from surreal.plugins.sweep.folder import SweepFolder, TrialFile
from surreal.plugins.sweep.processes import Room
from surreal.plugins.sweep.proposing import Grid, OptunaSearch
from surreal.plugins.sweep.sweeping import Sweeping
from surreal.plugins.sweep.view import SweepView

#: Rounds of a run's evaluation, 100 env steps apart.
ROUNDS = 4
_LOCK = f"process {os.getpid()} on {socket.gethostname()}\n"

#: From settings, seed and round to a mean return, None for one that is not finite; an exception fails the run.
Returns = Callable[[dict[str, Any], int, int], float | None]


class SimulatedRun:
    """One run, in place of a `LaunchedRun`."""

    def __init__(self, folder: Path, settings: dict[str, Any], seed: int, returns: Returns) -> None:
        self.folder, self.settings, self.seed, self._returns = folder, settings, seed, returns
        self.code: int | None = None
        self.stop_reason = ""
        self._has_begun = False
        self._last_code: int | None = None

    def poll(self) -> int | None:
        if self._last_code is not None:  # its result is there a moment before it is gone
            self.code = self._last_code
        elif self.code is None:
            self._go_on()
        return self.code

    def interrupt(self) -> None:
        if self.code is None and self._last_code is None:
            self._end("interrupted", "interrupted by SIGINT", 130)

    def kill(self) -> None:
        self.cut_off()

    def last_words(self) -> str:
        return "its last words"

    def cut_off(self, code: int = -9) -> None:
        """As SIGKILL does: the kernel gives the lock back, and nothing else changes."""
        if self.code is None:
            if self._has_begun:
                (self.folder / "run.lock").write_text("")
            self.code = code

    def _go_on(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "run.lock").write_text(_LOCK)
            (self.folder / "run.id").write_text(f"{self.folder.name}\n")
            self._write_result("running", "")
            (self.folder / "app.yaml").write_text(json.dumps({"settings": self.settings, "seed": self.seed}))
            return
        scores = self.folder / "eval" / "scores.jsonl"
        scores.parent.mkdir(exist_ok=True)
        number = len(scores.read_text().splitlines()) if scores.exists() else 0
        if self.stop_reason or number == ROUNDS:
            self._end("finished", self.stop_reason or "max_env_steps", 0)
            return
        try:
            mean = self._returns(self.settings, self.seed, number)
        except RuntimeError as error:
            self._end("failed", f"learner failed: {error}", 1)
            return
        line = {"kind": "round", "round": number, "global_step": 100 * (number + 1), "mean_return": mean}
        with scores.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _end(self, status: str, reason: str, code: int) -> None:
        if self._has_begun:
            self._write_result(status, reason)
            (self.folder / "run.lock").write_text("")
        self._last_code = code

    def _write_result(self, status: str, reason: str) -> None:
        content = {"run": self.folder.name, "status": status, "reason": reason, "started": time.time(), "seed": 0}
        (self.folder / "result.json").write_text(json.dumps(content))


class SimulatedRunner:
    """Starts such runs, and remembers what it was asked for.

    Attributes:
        begun: how often each run was started anew, by the name of its folder; lasts over several runners.
        resumed: how often it was resumed.
        most: most runs at once.
    """

    def __init__(self, returns: Returns, begun: Counter[str] | None = None) -> None:
        self._returns = returns
        self.begun = Counter[str]() if begun is None else begun
        self.resumed = Counter[str]()
        self.forgotten: list[str] = []
        self.runs: dict[str, SimulatedRun] = {}
        self.most = 0

    def start(self, arguments: Sequence[str], console: Path) -> SimulatedRun:
        words = list(arguments)
        folder = Path(words[words.index("--run-dir") + 1])
        if "--resume" in words:
            self.resumed[folder.name] += 1
            kept = json.loads((folder / "app.yaml").read_text())
            settings, seed = kept["settings"], kept["seed"]
        else:
            assert not (folder / "app.yaml").exists(), "a run that holds something must be resumed"
            self.begun[folder.name] += 1
            pairs = [words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set"]
            settings = {key: json.loads(value) for key, value in pairs}
            seed = settings.pop("seed")
        run = SimulatedRun(folder, settings, seed, self._returns)
        self.runs[words[words.index("--run") + 1]] = run
        self.most = max(self.most, sum(each.code is None for each in self.runs.values()))
        return run

    def stop(self, run: str, reason: str) -> None:
        assert json.loads((self.runs[run].folder / "result.json").read_text())["status"] == "running"
        self.runs[run].stop_reason = reason

    def forget(self, run: str) -> None:
        self.forgotten.append(run)

    def cut_off(self) -> None:
        """All that runs is killed."""
        for run in self.runs.values():
            run.cut_off()


class SimulatedSweep:
    """A sweep of such runs in a folder; going on with it is making another one.

    Args:
        path: its folder.
        text: its file.
        returns: of all runs.
        begun: see `SimulatedRunner`.
    """

    def __init__(self, path: Path, text: str, returns: Returns, begun: Counter[str] | None = None) -> None:
        self.definition = _definition(path, text)
        self.folder = SweepFolder(path)
        self.folder.claim()
        if self.folder.holds_sweep:
            _, self.trials = self.folder.resume(self.definition)
        else:
            self.trials = self.folder.begin(self.definition)
        self.runner = SimulatedRunner(returns, begun)
        self.proposer = (
            Grid(self.definition)
            if self.definition.config.search is None
            else OptunaSearch(self.definition, self.trials.trials, path / "optuna.journal")
        )
        self.sweeping = Sweeping(
            self.definition,
            self.folder,
            self.trials,
            self.proposer,
            self.runner,
            room=Room(4, 1 << 40),
            view=SweepView(Console(), self.trials.trials, 0, is_quiet=True),
        )

    def run(self, most_steps: int = 1000) -> TrialFile:
        """Let it run to its end."""
        for _ in range(most_steps):
            if not self.sweeping.step():
                break
        self.folder.release()
        return self.trials

    def cut_off(self) -> None:
        """All of it is killed."""
        self.runner.cut_off()
        self.folder.release()


def _definition(path: Path, text: str) -> Definition:
    file = path.parent / "lr.yaml"
    file.write_text(text)
    return load_definition(file)
