"""How soon a preset is solved, against Stable-Baselines3 with the same network and settings on the same cores.

    python -m benchmarks.learning [PRESET ...] [--rounds N]

One run of ours, one of theirs, with the same seed, again and again: seconds from the start of the command until it has
ended by itself, because its policy reached the goal in 20 episodes and then in 100 more; the env steps that this policy
had learned from; and, of cartpole-ppo, the env steps a second without evaluation and without a goal, and how long an
agent waits between two rounds beyond the learner's own update.
Needs Stable-Baselines3, which is installed into an environment of its own when it is first needed.
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
#: The rule by which theirs is evaluated; Pendulum's presets ask for far more episodes.
_EVALUATION = ["eval.episodes=20", "eval.num_envs=20", "eval.confirm_episodes=100", "eval.interval_s=0.2"]
#: What makes our run the same algorithm as theirs.
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
    """Of one run."""

    is_solved: bool
    seconds: float  #: of the whole command
    env_steps: int  #: that the policy had learned from


def main(argv: Sequence[str]) -> None:
    """Compare, preset by preset."""
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
    """Report env steps a second while learning, with neither evaluation nor goal, and what a round costs."""
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
    """Run our preset."""
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = _run(preset, seed, folder, _SETTINGS.get(preset, []))
        seconds = time.perf_counter() - started_s
        result = json.loads((run / "result.json").read_text())
    goal, best = load_config(preset).run.stop_at_return, result["best"]
    is_solved = goal is not None and best is not None and best["mean_return"] >= goal
    # Those that the policy had learned from: ours goes on while it is evaluated, theirs waits.
    return Solved(is_solved, seconds, best["global_step"] if is_solved else result["env_steps"])


def theirs(preset: str, seed: int, python: Path | str) -> Solved:
    """Run theirs."""
    goal = load_config(preset).run.stop_at_return
    assert goal is not None
    started_s = time.perf_counter()
    found = _ask(python, preset, seed, goal)
    return Solved(found["return"] >= goal, time.perf_counter() - started_s, found["env_steps"])


def agent_speed(lines: Sequence[Mapping[str, Any]]) -> float:
    """Env steps a second between the first and the last report of the agents."""
    first: dict[str, tuple[float, float]] = {}
    last: dict[str, tuple[float, float]] = {}
    for line in lines:
        if steps := line["metrics"].get("agent/env_steps_total"):
            first.setdefault(line["process"], (line["time"], steps))
            last[line["process"]] = line["time"], steps
    began, ended = min(time_s for time_s, _ in first.values()), max(time_s for time_s, _ in last.values())
    return sum(steps - first[agent][1] for agent, (_, steps) in last.items()) / (ended - began)


def round_wait(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What an agent waited between two rounds beyond the learner's own update, ms, mean over a run's rounds."""
    found = {name: value for line in lines for name, value in line["metrics"].items()}
    waited_ms = 1e3 * found["agent/round_wait_s_total"] / found["learner/updates_total"]
    updates = [line["metrics"]["learner/optimize_ms"] for line in lines if "learner/optimize_ms" in line["metrics"]]
    return {"beyond_ms": waited_ms - statistics.fmean(updates), "wait_ms": waited_ms}


def metrics_lines(preset: str, seed: int, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Run our preset without evaluation and goal; returns what its processes reported."""
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
