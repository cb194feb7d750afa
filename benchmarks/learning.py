"""Measure how soon a preset is solved, compared with Stable-Baselines3 on the same cores.

    python -m benchmarks.learning [PRESET ...] [--rounds N]

Both have the same network, settings and seed, and their runs alternate. A run ends when its policy reaches the goal in
20 episodes and then in 100 more. Reported are the seconds of the whole command, and the env steps that this policy had
learned from. For cartpole-ppo, two more results come from runs without evaluation and goal: env steps a second, and the
time that an agent waits between two rounds beyond the learner's update.
Stable-Baselines3 is installed into a separate environment when it is first needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.peers import SB3, find_python, skip
from surreal.config import load_config

_PEER = Path(__file__).parent / "baselines" / "sb3_peer.py"
#: How SB3's policy is evaluated. Pendulum's presets ask for far more episodes.
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
}
PRESETS = ("cartpole-ppo", "cartpole-dqn", "pendulum-ppo", "pendulum-sac")


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
    asked = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    python = find_python(SB3)
    if isinstance(python, str):
        skip("learning", python)
        return
    for preset in asked.presets:
        compare_learning(preset, python, asked.rounds)
        if preset == "cartpole-ppo":
            compare_speed(preset, python, asked.rounds)


def compare_learning(preset: str, python: Path | str, rounds: int) -> None:
    """Report time and env steps until solved."""
    pairs = [(ours(preset, seed), theirs(preset, seed, python)) for seed in range(rounds)]
    counts = {"ours_solved": sum(a.is_solved for a, _ in pairs), "theirs_solved": sum(b.is_solved for _, b in pairs)}
    kinds = (("seconds", "runs/h", 3600, 1.0), ("env_steps", "runs/million env steps", 1e6, 1 / 1.1))
    for name, unit, scale, aim in kinds:
        our, their = ([getattr(run, name) for run in runs] for runs in zip(*pairs, strict=True))
        rates = [scale / value for value in our], [scale / value for value in their]
        values = {f"our_{name}": [round(value) for value in our], f"their_{name}": [round(value) for value in their]}
        report(f"{preset} solved, {name}", unit, *rates, aim=round(aim, 3), **counts, **values)


def compare_speed(preset: str, python: Path | str, rounds: int) -> None:
    """Report env steps a second while learning, without evaluation and goal, and the agents' wait between rounds."""
    speeds, waits = [], []
    for seed in range(rounds):
        lines = metrics_lines(preset, seed, [])
        waits.append(round_wait(lines))
        speeds.append((agent_speed(lines), _ask(python, preset, seed, math.inf)["env_steps_per_s"]))
    report(f"{preset} while learning", "env steps/s", [a for a, _ in speeds], [b for _, b in speeds], aim=1.5)
    medians = {name: round(statistics.median(wait[name] for wait in waits), 2) for name in waits[0]}
    line = {"name": f"{preset}, wait of a round beyond the update", "unit": "ms", "aim_ms": 5.0, **medians}
    sys.stdout.write(json.dumps(line) + "\n")


def ours(preset: str, seed: int) -> Solved:
    """Run Surreal's preset."""
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = _run(preset, seed, folder, _SETTINGS.get(preset, []))
        seconds = time.perf_counter() - started_s
        result = json.loads((run / "result.json").read_text())
    goal, best = load_config(preset).run.stop_at_return, result["best"]
    is_solved = goal is not None and best is not None and best["mean_return"] >= goal
    # The env steps that the policy had learned from: Surreal keeps learning during an evaluation, SB3 waits for it.
    return Solved(is_solved, seconds, best["global_step"] if is_solved else result["env_steps"])


def theirs(preset: str, seed: int, python: Path | str) -> Solved:
    """Run Stable-Baselines3."""
    goal = load_config(preset).run.stop_at_return
    assert goal is not None
    started_s = time.perf_counter()
    found = _ask(python, preset, seed, goal)
    return Solved(found["return"] >= goal, time.perf_counter() - started_s, found["env_steps"])


def agent_speed(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return the env steps a second between the first and the last report of the agents."""
    first: dict[str, tuple[float, float]] = {}
    last: dict[str, tuple[float, float]] = {}
    for line in lines:
        if steps := line["metrics"].get("agent/env_steps_total"):
            first.setdefault(line["process"], (line["time"], steps))
            last[line["process"]] = line["time"], steps
    began, ended = min(time_s for time_s, _ in first.values()), max(time_s for time_s, _ in last.values())
    return sum(steps - first[agent][1] for agent, (_, steps) in last.items()) / (ended - began)


def round_wait(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the ms that an agent waits between two rounds beyond the learner's update, mean over a run's rounds."""
    found = {name: value for line in lines for name, value in line["metrics"].items()}
    waited_ms = 1e3 * found["agent/round_wait_s_total"] / found["learner/updates_total"]
    updates = [line["metrics"]["learner/optimize_ms"] for line in lines if "learner/optimize_ms" in line["metrics"]]
    return {"beyond_ms": waited_ms - statistics.fmean(updates), "wait_ms": waited_ms}


def metrics_lines(preset: str, seed: int, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Run Surreal's preset without evaluation and goal, and return the metrics of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        run = _run(preset, seed, folder, ["run.stop_at_return=null", "eval.enabled=false", *settings])
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _run(preset: str, seed: int, folder: str, settings: Sequence[str]) -> Path:
    run = Path(folder) / "run"
    command = [sys.executable, "-m", "surreal", "run", preset, "--quiet", "--seed", str(seed), "--run-dir", str(run)]
    subprocess.run([*command, *(part for one in settings for part in ("--set", one))], check=True, capture_output=True)
    return run


def _ask(python: Path | str, preset: str, seed: int, goal: float) -> Any:
    command = [str(python), str(_PEER), preset, str(seed), str(goal)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
