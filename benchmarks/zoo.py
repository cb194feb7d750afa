"""Run Stable-Baselines3 with RL Baselines3 Zoo's settings on these cores, next to the presets of the Zoo's small tasks.

    python -m benchmarks.zoo                                what is missing, quick tasks first
    python -m benchmarks.zoo cartpole-ppo --seeds 0 1 2     run these again
    python -m benchmarks.zoo --list                         only list what is missing

Each run is the Zoo's own program with the same algorithm (of Stable-Baselines3 or sb3-contrib), its settings and its
number of env steps. Its best policy of 25 evaluations plays 1000 fresh episodes, as after `make learn`. Records go to
benchmarks/zoo.jsonl, from which `python -m benchmarks.learn --write` makes a table of docs/results.md. While a
benchmark measures, runs stop.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alone import Span, run_between_benchmarks
from benchmarks.peers import ZOO, find_python, print_line, script_path, skip
from benchmarks.references import REFERENCES

RECORDS = Path(__file__).with_name("zoo.jsonl")
#: The small tasks, quick ones first, with the Zoo's algorithms that presets have.
_TASKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cartpole", "CartPole-v1", ("ppo", "dqn", "trpo", "a2c")),
    ("pendulum", "Pendulum-v1", ("ddpg", "td3", "sac", "tqc", "crossq", "ppo", "trpo", "a2c")),
    ("acrobot", "Acrobot-v1", ("dqn", "a2c", "ppo")),
    ("mountaincar", "MountainCar-v0", ("dqn",)),
    ("mountaincar-continuous", "MountainCarContinuous-v0", ("sac",)),
    ("lunarlander", "LunarLander-v3", ("dqn", "ppo")),
    ("lunarlander-continuous", "LunarLanderContinuous-v3", ("trpo", "ppo", "ddpg", "td3", "sac", "tqc")),
)
TWINS = {f"{task}-{algorithm}": (algorithm, env_id) for task, env_id, algorithms in _TASKS for algorithm in algorithms}

HEAD = """
## Next to Stable-Baselines3

The same algorithm of Stable-Baselines3 or sb3-contrib ran on these cores with the settings and the env steps of RL
Baselines3 Zoo (`python -m benchmarks.zoo`). Both sides play 1000 fresh episodes with their best policy. SB3 trains for
all of its env steps, and Surreal ends at the preset's goal. `yes` means that Surreal's mean over the seeds is at least
as high, and `overlap` that it is lower while the ranges over the seeds overlap. The last column has the Zoo's figure.

| preset | Surreal | env steps | SB3 | env steps | at least as good | the Zoo's |
|---|---|---|---|---|---|---|
"""


def main(argv: Sequence[str]) -> int:
    """Run what is asked for; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=", ".join(TWINS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--list", action="store_true", help="only list the runs")
    asked = parser.parse_args(argv)
    if unknown := [preset for preset in asked.presets if preset not in TWINS]:
        parser.error(f"the Zoo has no twin of {', '.join(unknown)}; it has {', '.join(TWINS)}")
    there = read_records()
    jobs = [
        (preset, seed)
        for preset in asked.presets or TWINS
        for seed in asked.seeds
        if asked.presets or seed not in there.get(preset, {})
    ]
    if asked.list:
        sys.stdout.writelines(f"{preset} {seed}\n" for preset, seed in jobs)
        return 0
    python = find_python(ZOO)
    if isinstance(python, str):
        skip("zoo", python)
        return 1
    has_failed = False
    for preset, seed in jobs:
        record = run(python, preset, seed)
        print_line(record)
        has_failed |= "error" in record
        if "error" not in record:
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return int(has_failed)


def run(python: Path, preset: str, seed: int) -> dict[str, Any]:
    """Train and play with the twin of a preset; returns a record."""
    algorithm, env_id = TWINS[preset]
    record = {"preset": preset, "algorithm": algorithm, "env": env_id, "seed": seed, "packages": list(ZOO.packages)}
    active: list[Span] = []
    with tempfile.TemporaryDirectory() as folder:
        command = ["nice", "-n", "10", "env", "OMP_NUM_THREADS=1", str(python), str(script_path("zoo_peer.py"))]
        ended = run_between_benchmarks([*command, algorithm, env_id, str(seed), folder], active)
    if ended.returncode:
        return {**record, "error": (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]}
    seconds = round(sum(span.ended_s - span.began_s for span in active))
    machine = f"{os.cpu_count()} cores"
    return {**record, **json.loads(ended.stdout.strip().splitlines()[-1]), "seconds": seconds, "machine": machine}


def read_records() -> dict[str, dict[int, Mapping[str, Any]]]:
    """Read the records: preset -> seed -> its newest record."""
    found: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    if RECORDS.exists():
        for line in RECORDS.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found[record["preset"]][record["seed"]] = record
    return found


def rows(
    ours: Mapping[str, Sequence[Mapping[str, Any]]], theirs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """Write a row of the table for each preset that both sides have run; both are the records of its seeds."""
    for preset in TWINS:
        our, their = ours.get(preset, ()), theirs.get(preset, ())
        if our and their:
            reference = REFERENCES.get(preset)
            cells = [*_cells(our), *_cells(their), verdict(*(
                [record["return"] for record in records] for records in (our, their)
            ))]  # fmt: skip
            cells.append("" if reference is None else f"{reference.mean_return:g}")
            yield f"| `{preset}` | {' | '.join(cells)} |"


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Compare returns over seeds; returns `yes` if the first mean is at least as high, else `overlap` or `no`."""
    if sum(ours) / len(ours) >= sum(theirs) / len(theirs):
        return "yes"
    return "overlap" if max(ours) >= min(theirs) else "no"


def _cells(records: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    returns = [record["return"] for record in records]
    spread = f" ({min(returns):.4g} .. {max(returns):.4g})" if len(returns) > 1 else " (one seed)"
    steps = sorted(record["env_steps"] for record in records)[len(records) // 2]
    return f"{sum(returns) / len(returns):.4g}{spread}", f"{steps:,}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
