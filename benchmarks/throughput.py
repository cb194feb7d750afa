"""Compare env steps a second of acting and learning with other libraries, and with a limit of the cores.

    python -m benchmarks.throughput [PRESET ...] [--rounds N] [--quick]

Stable-Baselines3 and sbx-rl (JAX) have the settings of the preset. Sample Factory's APPO has one epoch next to V-trace,
which also learns from each step once, and four epochs next to PPO. There is no evaluation. Runs alternate. A peer runs
with one thread and with two, and its faster rate counts (`peer_threads`). The first env steps do not count, because
code is compiled and replays are filled meanwhile. An env step of Pong is four frames. A run before the first round
compiles Surreal's update, which the cache of the machine then has, as in every run of a preset but the first.

`benchmarks.limit` measures the limit of Pong. The peers have separate virtual environments, made when they are first
needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.learning import run_preset
from benchmarks.limit import Limit
from benchmarks.peers import SAMPLE_FACTORY, SB3, SBX, Requirement, ask_script, find_python, rotate, skip

_ENVS = 8  # of Pong
_QUICK = 0.5  # share of the env steps


class Peer(NamedTuple):
    """Another library, and how it is run."""

    name: str
    needs: Requirement
    script: str  #: file in `benchmarks/baselines`
    arguments: tuple[object, ...]
    threads: tuple[int | None, ...] = (1, 2)


class Row(NamedTuple):
    """A preset, and what it is compared with."""

    steps: int  #: env steps of each run, including the warm-up
    warm_up: int
    settings: tuple[str, ...]  #: make the algorithm the same as the peers', and fit the run to two cores
    peers: tuple[Peer, ...]
    epochs: int | None = None  #: number of times that each step is learned from, for the limit; None: no limit
    aim: float = 1.0


def _stable_baselines(preset: str) -> Peer:
    return Peer("Stable-Baselines3", SB3, "sb3_peer.py", (preset,))


def _sbx(preset: str) -> Peer:
    return Peer("sbx-rl", SBX, "sb3_peer.py", (preset, "--library", "sbx"))


def _sample_factory(epochs: int) -> Peer:
    return Peer("Sample Factory", SAMPLE_FACTORY, "sample_factory_peer.py", (_ENVS, epochs), threads=(None,))


_PONG_PPO = Peer("Stable-Baselines3", SB3, "sb3_atari_peer.py", (_ENVS,), threads=(2,))  # one is slower
_SHORT_START = ("agent.args.random_steps=1000", "replay.start_size=1000", "replay.capacity=100_000")
ROWS = {
    "cartpole-ppo": Row(60_000, 10_000, (), (_stable_baselines("cartpole-ppo"), _sbx("cartpole-ppo")), aim=1.5),
    "cartpole-dqn": Row(
        40_000, 6_000, ("learner.args.double=false",), (_stable_baselines("cartpole-dqn"), _sbx("cartpole-dqn"))
    ),
    "pendulum-sac": Row(6_000, 2_000, (), (_stable_baselines("pendulum-sac"),)),
    "halfcheetah-ppo": Row(12_288, 2_048, (), (_stable_baselines("halfcheetah-ppo"),)),
    "halfcheetah-sac": Row(3_000, 1_200, _SHORT_START, (_stable_baselines("halfcheetah-sac"), _sbx("halfcheetah-sac"))),
    "halfcheetah-tqc": Row(3_000, 1_200, _SHORT_START, (_sbx("halfcheetah-tqc"),)),
    # Agents that fit two cores next to a learner; env.num_envs is the number of environments of each.
    "atari-vtrace": Row(16_000, 0, ("agent.count=1", f"env.num_envs={_ENVS}"), (_sample_factory(1),), epochs=1),
    "atari-ppo": Row(
        16_000, 0, ("agent.count=2", f"env.num_envs={_ENVS // 2}"), (_sample_factory(4), _PONG_PPO), epochs=4
    ),
}


def main(argv: Sequence[str]) -> None:
    """Compare each preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=list(ROWS), metavar="PRESET", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, help="3 by default, and 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="half as many env steps")
    asked = parser.parse_args(argv)
    if unknown := set(asked.presets) - set(ROWS):
        parser.error(f"no rows for {', '.join(sorted(unknown))}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for preset in asked.presets:
        row = ROWS[preset]
        if asked.quick:
            row = row._replace(steps=row.warm_up + int(_QUICK * (row.steps - row.warm_up)))
        compare(preset, row, asked.rounds or (1 if asked.quick else 3))


def compare(preset: str, row: Row, rounds: int) -> None:
    """Report the ratio of a preset's env steps/s to those of each peer, and its share of the limit."""
    waits: list[dict[str, float]] = []
    measures: dict[str, Callable[[], float]] = {"ours": partial(_ours, preset, row, waits)}
    for peer in row.peers:
        python = find_python(peer.needs)
        if isinstance(python, str):
            skip(f"{preset} over {peer.name}", python)
            continue
        for threads in peer.threads:
            measures[_key(peer, threads)] = partial(_theirs, peer, python, row, threads)
    if row.epochs is not None:
        measures["limit"] = Limit(preset, row.epochs, _ENVS).measure
    _ours(preset, row._replace(settings=(*row.settings, "learner.compile=true")), [])
    found = rotate(measures, rounds, warm_ups=0)
    for peer in row.peers:
        rates = {threads: found[_key(peer, threads)] for threads in peer.threads if _key(peer, threads) in found}
        if rates:
            best = max(rates, key=lambda threads: statistics.median(rates[threads]))
            name = f"{preset} over {peer.name}"
            report(name, "env steps/s", found["ours"], rates[best], aim=row.aim, peer_threads=best)
    if "limit" in found:
        report(f"{preset}, share of the limit", "env steps/s", found["ours"], found["limit"], aim=None)
    if waits:
        medians = {name: round(statistics.median(wait[name] for wait in waits), 2) for name in waits[0]}
        line = {"name": f"{preset}, wait of a round beyond the update", "unit": "ms", "aim_ms": 5.0, **medians}
        sys.stdout.write(json.dumps(line) + "\n")


def _key(peer: Peer, threads: int | None) -> str:
    return f"{peer.name}, {threads} threads"


def _ours(preset: str, row: Row, waits: list[dict[str, float]]) -> float:
    settings = ["run.stop_at_return=null", "eval.enabled=false", f"run.max_env_steps={row.steps}", *row.settings]
    with tempfile.TemporaryDirectory() as folder:
        run = run_preset(preset, 0, Path(folder) / "run", settings)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if preset == "cartpole-ppo":
        waits.append(round_wait(lines))
    return agent_speed(lines, row.warm_up)


def _theirs(peer: Peer, python: Path, row: Row, threads: int | None) -> float:
    arguments = [*peer.arguments, "--steps", row.steps, *(["--warm-up", row.warm_up] if row.warm_up else [])]
    found = ask_script(python, peer.script, *arguments, threads=threads)
    return float(found["env_steps_per_s"])


def agent_speed(lines: Sequence[Mapping[str, Any]], warm_up: int = 0) -> float:
    """Return the env steps a second between the first report after the warm-up and the last one before the end.

    Args:
        lines: records of `metrics.jsonl`.
        warm_up: number of first env steps, of all agents together, that do not count.

    Raises:
        RuntimeError: the agents reported less than twice after the warm-up.
    """
    steps: dict[str, float] = {}
    totals: list[tuple[float, float]] = []
    for line in lines:
        if found := line["metrics"].get("agent/env_steps_total"):
            steps[line["process"]] = found
            totals.append((line["time"], sum(steps.values())))
    if totals:  # an agent's last report may come long after its last env step
        counted = [each for each in totals if warm_up <= each[1] < totals[-1][1]]
        if len(counted) >= 2:
            (began_s, first), (ended_s, last) = counted[0], counted[-1]
            return (last - first) / (ended_s - began_s)
    raise RuntimeError(f"the agents reported less than twice after {warm_up} env steps; more --steps are needed")


def round_wait(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the ms that an agent waits between two rounds beyond the learner's update, mean over a run's rounds."""
    found = {name: value for line in lines for name, value in line["metrics"].items()}
    waited_ms = 1e3 * found["agent/round_wait_s_total"] / found["learner/updates_total"]
    updates = [line["metrics"]["learner/optimize_ms"] for line in lines if "learner/optimize_ms" in line["metrics"]]
    return {"beyond_ms": waited_ms - statistics.fmean(updates), "wait_ms": waited_ms}


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
