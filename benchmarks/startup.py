"""Measure how long `surreal run` takes to act, to learn and to end, compared with the bare imports of one role.

    python -m benchmarks.startup [--rounds N]

A short run of the preset cartpole-dqn gives the times from the start of the command to an agent's first env step, to
the learner's first update, and to the end of the drained run. The floor is a Python process that imports what a role
needs, and ends. Environment and learner are those of the preset, but record the time of their first use.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.alone import alone
from benchmarks.harness import report

IMPORTS = "import torch, numpy, pyarrow, gymnasium, pydantic, redis, safetensors, psutil, yaml, fsspec"

PARTS = """
import os, pathlib, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
from surreal.learner import DQNLearner

def note(name):
    path = pathlib.Path(__file__).with_name(name)
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(repr(time.time()))
        temporary.rename(path)

class NotingCartPole(CartPoleEnv):
    is_noted = False
    def step(self, action):
        if not self.is_noted:
            self.is_noted = True
            note("first-step")
        return super().step(action)

class NotingLearner(DQNLearner):
    def learn(self, i, batch):
        metrics = super().learn(i, batch)
        if self.updates == 0:
            note("first-update")
        return metrics

gymnasium.register("NotingCartPole-v0", NotingCartPole, max_episode_steps=500)
"""

SETTINGS = (
    "env.id=startup_parts:NotingCartPole-v0",
    "eval.env_id=CartPole-v1",
    "learner.class=startup_parts.NotingLearner",
    "replay.start_size=200",
    "run.max_env_steps=2000",
    "run.stop_at_return=null",
)


class Times(NamedTuple):
    """Times of one run, s."""

    first_step: float
    first_update: float
    end: float


def run() -> Times:
    """Start a run and wait for its end."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "startup_parts.py").write_text(PARTS)
        settings = [part for setting in (*SETTINGS, f"python_path=[{folder}]") for part in ("--set", setting)]
        started = time.time()
        command = [sys.executable, "-m", "surreal", "run", "cartpole-dqn", "--quiet", *settings]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        ended = time.time()
        notes = [float((folder / name).read_text()) for name in ("first-step", "first-update")]
        return Times(notes[0] - started, notes[1] - started, ended - started)


def bare() -> float:
    """Import what a role needs and end."""
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pairs = [(run(), bare()) for _ in range(args.rounds + 1)][1:]
    floor = [seconds for _, seconds in pairs]
    for name, aim in zip(Times._fields, (1 / 1.3, None, None), strict=True):
        times = [getattr(found, name) for found, _ in pairs]
        report(
            f"surreal run, {name.replace('_', ' ')}",
            "starts/min",
            [60 / seconds for seconds in times],
            [60 / seconds for seconds in floor],
            aim=None if aim is None else round(aim, 3),
            median_s=round(statistics.median(times), 2),
            floor_s=round(statistics.median(floor), 2),
        )


if __name__ == "__main__":
    with alone():
        main()
