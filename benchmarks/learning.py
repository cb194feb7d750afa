"""Measure how soon a preset is solved, compared with Stable-Baselines3 on the same cores.

    python -m benchmarks.learning [PRESET ...] [--rounds N] [--quick]

Both have the same network, settings and seed, and their runs alternate. A run ends when its policy reaches the goal in
20 episodes and then in 100 more. Reported are the seconds of the whole command, and the env steps that this policy had
learned from. Stable-Baselines3 has one thread or two, whichever makes it faster. It is installed into a separate
environment when it is first needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.peers import SB3, ask_script, find_python, skip
from surreal.config import load_config

#: How SB3's policy is evaluated. The presets of Pendulum and LunarLander ask for far more episodes.
_EVALUATION = ["eval.episodes=20", "eval.num_envs=20", "eval.confirm_episodes=100", "eval.interval_s=0.2"]
#: Settings that make Surreal's run the same algorithm as SB3's.
_SETTINGS = {
    "cartpole-dqn": ["learner.args.double=false"],
    "pendulum-ppo": [
        "learner.args.initial_learning_rate=1e-3",
        "learner.args.use_linear_schedule=false",
        "learner.args.mini_batch=128",
        "learner.gamma=0.9",
        "agent.args.noise_correlation=0.0",
        *_EVALUATION,
    ],
    "pendulum-sac": ["learner.args.use_linear_schedule=false", *_EVALUATION],
    "pendulum-tqc": ["learner.args.use_linear_schedule=false", *_EVALUATION],
    "lunarlander-ppo": _EVALUATION,
    "lunarlander-dqn": ["learner.args.double=false", "model.args.dueling=false", *_EVALUATION],
}
PRESETS = (
    "cartpole-ppo", "cartpole-dqn", "pendulum-ppo", "pendulum-sac", "pendulum-tqc",
    "lunarlander-ppo", "lunarlander-dqn",
)  # fmt: skip
#: Env steps that show which number of threads is faster, and those before them that are not measured. PPO's updates
#: come after 16,384.
_TRIAL, _TRIALS = (4_000, 2_000), {"lunarlander-ppo": (60_000, 16_000)}


class Solved(NamedTuple):
    """The result of one run."""

    is_solved: bool
    seconds: float  #: duration of the whole command
    env_steps: int  #: env steps that the policy had learned from


def main(argv: Sequence[str]) -> None:
    """Compare each preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=list(PRESETS), metavar="PRESET", help=", ".join(PRESETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round")
    asked = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    python = find_python(SB3)
    if isinstance(python, str):
        skip("learning", python)
        return
    for preset in asked.presets:
        compare_learning(preset, python, 1 if asked.quick else asked.rounds)


def compare_learning(preset: str, python: Path, rounds: int) -> None:
    """Report time and env steps until solved."""
    steps, warm_up = _TRIALS.get(preset, _TRIAL)
    speeds = {
        threads: ask_script(python, "sb3_peer.py", preset, "--steps", steps, "--warm-up", warm_up, threads=threads)
        for threads in (1, 2)
    }
    threads = max(speeds, key=lambda threads: speeds[threads]["env_steps_per_s"])
    pairs = [(ours(preset, seed), theirs(preset, seed, python, threads)) for seed in range(rounds)]
    counts = {"peer_threads": threads}
    counts |= {"ours_solved": sum(a.is_solved for a, _ in pairs), "theirs_solved": sum(b.is_solved for _, b in pairs)}
    kinds = (("seconds", "runs/h", 3600, 1.0), ("env_steps", "runs/million env steps", 1e6, 1 / 1.1))
    for name, unit, scale, aim in kinds:
        our, their = ([getattr(run, name) for run in runs] for runs in zip(*pairs, strict=True))
        rates = [scale / value for value in our], [scale / value for value in their]
        values = {f"our_{name}": [round(value) for value in our], f"their_{name}": [round(value) for value in their]}
        report(f"{preset} solved over Stable-Baselines3, {name}", unit, *rates, aim=round(aim, 3), **counts, **values)


def ours(preset: str, seed: int) -> Solved:
    """Run Surreal's preset."""
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = run_preset(preset, seed, Path(folder) / "run", _SETTINGS.get(preset, []))
        seconds = time.perf_counter() - started_s
        result = json.loads((run / "result.json").read_text())
    goal, best = load_config(preset).run.stop_at_return, result["best"]
    is_solved = goal is not None and best is not None and best["mean_return"] >= goal
    # The env steps that the policy had learned from: Surreal keeps learning during an evaluation, SB3 waits for it.
    return Solved(is_solved, seconds, best["global_step"] if is_solved else result["env_steps"])


def theirs(preset: str, seed: int, python: Path, threads: int) -> Solved:
    """Run Stable-Baselines3."""
    goal = load_config(preset).run.stop_at_return
    assert goal is not None
    started_s = time.perf_counter()
    found = ask_script(python, "sb3_peer.py", preset, "--seed", seed, "--goal", goal, threads=threads)
    return Solved(found["return"] >= goal, time.perf_counter() - started_s, found["env_steps"])


def run_preset(preset: str, seed: int, run_dir: Path, settings: Sequence[str]) -> Path:
    """Run Surreal's preset with some settings changed, and return its folder."""
    command = [
        sys.executable,
        "-m",
        "surreal",
        "run",
        preset,
        "--quiet",
        "--seed",
        str(seed),
        "--run-dir",
        str(run_dir),
    ]
    subprocess.run([*command, *(part for one in settings for part in ("--set", one))], check=True, capture_output=True)
    return run_dir


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
