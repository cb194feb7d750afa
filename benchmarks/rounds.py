"""Measure the age of on-policy experience when a learner uses it, with and without kills and pauses of the learner.

    python -m benchmarks.rounds cartpole-a2c cartpole-ppo                  # six kills a minute apart, three pauses
    python -m benchmarks.rounds cartpole-a2c --every 5 --round-timeout-s 2

Each preset runs twice with its own settings: undisturbed, and with SIGKILLs of the learner and SIGSTOPs longer than
`agent.round_timeout_s`. Over the last batches, the disturbed run may be 0.05 versions and 2 points of stale steps above
the other one. The exit code is 1 if it is more.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from surreal.base.types import TrajectoryBatch
from surreal.config import load_config
from surreal.learner import A2CLearner, IPGLearner, Learner, PPOLearner
from surreal.run.process.finding import find_run
from surreal.run.view.reader import run_status

NOTES = "SURREAL_ROUND_NOTES"
#: The disturbed run may exceed the other one by this much: versions, and share of the steps.
MOST_LAG, MOST_STALE = 0.05, 0.02
_DEADLINE_S = 600.0


class Age(NamedTuple):
    """The age of the steps in batches."""

    lag: float  #: versions, mean
    stale: float  #: share of the steps whose action is not from the newest version


def note(learner: Learner, batch: TrajectoryBatch) -> None:
    """Record the age of a batch's on-policy steps."""
    is_step = batch.mask > 0
    if "is_on_policy" in batch.extras:
        is_step &= batch.extras["is_on_policy"] > 0
    lag = (learner.model.version - batch.version[is_step]).clamp(min=0).double()
    with open(os.environ[NOTES], "a", encoding="ascii") as file:
        file.write(f"{float(lag.mean())} {float((lag > 0).double().mean())}\n")


class NotingA2C(A2CLearner):
    """A2C that records the age of its batches."""

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        note(self, batch)
        return super().learn(i, batch)


class NotingPPO(PPOLearner):
    """PPO that records the age of its batches."""

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        note(self, batch)
        return super().learn(i, batch)


class NotingIPG(IPGLearner):
    """Interpolated policy gradient that records the age of its on-policy batches."""

    def learn(self, i: int, batch: Any) -> Mapping[str, Tensor | float]:
        note(self, batch)
        return super().learn(i, batch)


NOTING = {f"surreal.learner.{cls.__mro__[1].__name__}": cls for cls in (NotingA2C, NotingPPO, NotingIPG)}


class Run:
    """One run of a preset.

    Args:
        preset: Preset of an on-policy algorithm.
        folder: Empty folder for the run.
        overrides: Further settings.
    """

    def __init__(self, preset: str, folder: Path, overrides: Sequence[str]) -> None:
        self._folder, self._notes = folder / "run", folder / "notes"
        learner = NOTING[load_config(preset).learner.class_path]
        settings = [f"learner.class=benchmarks.rounds.{learner.__name__}", "run.stop_at_return=null", *overrides]
        settings += ["run.max_env_steps=1000000000", "run.restart_limit=100"]
        command = [sys.executable, "-m", "surreal", "run", preset, "--run-dir", str(self._folder)]
        command += [word for setting in settings for word in ("--set", setting)]
        environment = os.environ | {NOTES: str(self._notes), "PYTHONPATH": str(Path(__file__).parents[1])}
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def ages(self) -> list[Age]:
        """Return the age of each batch so far."""
        lines = self._notes.read_text().splitlines(keepends=True) if self._notes.exists() else []
        return [Age(*map(float, line.split())) for line in lines if line.endswith("\n")]

    def wait_for(self, batches: int) -> None:
        """Wait until the learner has used `batches` more batches."""
        wanted = len(self.ages()) + batches
        _wait(lambda: len(self.ages()) >= wanted or self._process.poll() is not None, f"{batches} batches")
        if self._process.poll() is not None:
            raise RuntimeError(f"the run ended: {(self._folder.parent / 'output').read_text()[-2000:]}")

    def signal_learner(self, number: int) -> int:
        """Send a signal to the learner's process; returns its id."""
        found: list[int] = []

        def find() -> bool:
            with find_run(None, address=None, run_dir=self._folder) as client:
                entries = run_status(client).to_json()["processes"]
            found[:] = [int(entry["pid"]) for entry in entries if entry["name"] == "learner" and _is_alive(entry)]
            return bool(found)

        _wait(find, "a learner")
        os.kill(found[-1], number)
        return found[-1]

    def end(self) -> None:
        """End the run gracefully."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_DEADLINE_S)


def disturb(run: Run, *, kills: int, pauses: int, every_s: float, pause_s: float) -> None:
    """Kill and pause the learner, with `every_s` between two disturbances."""
    for number in range(max(kills, pauses)):
        if number < kills:
            time.sleep(every_s)
            run.signal_learner(signal.SIGKILL)
            run.wait_for(1)
        if number < pauses:
            time.sleep(every_s)
            pid = run.signal_learner(signal.SIGSTOP)
            time.sleep(pause_s)
            os.kill(pid, signal.SIGCONT)
            run.wait_for(1)


def measure(preset: str, arguments: argparse.Namespace, *, is_disturbed: bool) -> Age:
    """Run a preset, and return how old its last batches were."""
    overrides = [] if arguments.round_timeout_s is None else [f"agent.round_timeout_s={arguments.round_timeout_s}"]
    timeout_s = load_config(preset, overrides).agent.round_timeout_s
    with tempfile.TemporaryDirectory() as folder:
        run = Run(preset, Path(folder), [*overrides, *arguments.set])
        try:
            run.wait_for(10)
            if is_disturbed:
                pause_s, every_s = 1.3 * timeout_s, arguments.every
                disturb(run, kills=arguments.kills, pauses=arguments.pauses, every_s=every_s, pause_s=pause_s)
            run.wait_for(arguments.batches + 20)
            last = run.ages()[-arguments.batches :]
        finally:
            run.end()
    return Age(*(sum(values) / len(last) for values in zip(*last, strict=True)))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure presets, and return 1 if a disturbed run exceeds the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--pauses", type=int, default=3)
    parser.add_argument("--every", type=float, default=60.0, help="s between two disturbances")
    parser.add_argument("--batches", type=int, default=200, help="batches at the end that are compared")
    parser.add_argument("--round-timeout-s", type=float, help="default: the preset's; a pause is 1.3 times as long")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args(argv)
    has_failed = False
    print("| preset | lag, versions | stale steps | lag, disturbed | stale, disturbed | |\n|---|---|---|---|---|---|")
    for preset in arguments.presets:
        calm, disturbed = (measure(preset, arguments, is_disturbed=value) for value in (False, True))
        is_good = disturbed.lag <= calm.lag + MOST_LAG and disturbed.stale <= calm.stale + MOST_STALE
        has_failed |= not is_good
        numbers = f"{calm.lag:.3f} | {calm.stale:.1%} | {disturbed.lag:.3f} | {disturbed.stale:.1%}"
        print(f"| {preset} | {numbers} | {'held' if is_good else 'failed'} |", flush=True)
    return int(has_failed)


def _is_alive(entry: Mapping[str, Any]) -> bool:
    return Path(f"/proc/{entry['pid']}").exists()


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {_DEADLINE_S:g} s for {what}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
