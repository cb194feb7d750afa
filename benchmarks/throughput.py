"""Compare env steps a second of acting and learning on Pong with Sample Factory and Stable-Baselines3.

    python -m benchmarks.throughput [PRESET ...] [--rounds N] [--steps N]

`atari-vtrace` is compared with Sample Factory's APPO with one epoch, which also learns from each step once. `atari-ppo`
is compared with its APPO with four epochs, and with Stable-Baselines3's PPO. All have the same network, preprocessing,
number of environments and cores, without evaluation. The time counts from the first env step to the last. An env step
is four frames. The peers have separate virtual environments, made when they are first needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.learning import agent_speed, metrics_lines
from benchmarks.peers import SAMPLE_FACTORY, SB3, Requirement, find_python, rotate, skip

_BASELINES = Path(__file__).parent / "baselines"
_ENVS = 8
#: Agents that fit two cores next to a learner; env.num_envs is the number of environments of each.
_OURS = {
    "atari-vtrace": ["agent.count=1", f"env.num_envs={_ENVS}"],
    "atari-ppo": ["agent.count=2", f"env.num_envs={_ENVS // 2}"],
}


def main(argv: Sequence[str]) -> None:
    """Compare each preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=list(_OURS), metavar="PRESET", help=", ".join(_OURS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000, help="env steps of each measurement")
    asked = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    peers = {
        "atari-vtrace": [("Sample Factory", SAMPLE_FACTORY, "sample_factory_peer.py", [_ENVS, 1, asked.steps])],
        "atari-ppo": [
            ("Sample Factory", SAMPLE_FACTORY, "sample_factory_peer.py", [_ENVS, 4, asked.steps]),
            ("Stable-Baselines3", SB3, "sb3_atari_peer.py", [_ENVS, asked.steps]),
        ],
    }
    for preset in asked.presets:
        settings = [*_OURS[preset], f"run.max_env_steps={asked.steps}"]
        measures: dict[str, Callable[[], float]] = {"ours": partial(_ours, preset, settings)}
        for name, needs, script, arguments in peers[preset]:
            python = _find(f"{preset} over {name}", needs)
            if python is not None:
                measures[name] = partial(_ask, python, script, arguments)
        found = rotate(measures, asked.rounds)
        for name in list(measures)[1:]:
            report(f"{preset} over {name}", "env steps/s", found["ours"], found[name], aim=1.0)


def _ours(preset: str, settings: Sequence[str]) -> float:
    return agent_speed(metrics_lines(preset, 0, settings))


def _find(name: str, needs: Requirement) -> Path | None:
    python = find_python(needs)
    if isinstance(python, str):
        skip(name, python)
        return None
    return python


def _ask(python: Path, script: str, arguments: Sequence[int]) -> float:
    command = [str(python), str(_BASELINES / script), *map(str, arguments)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return float(json.loads(ended.stdout.strip().splitlines()[-1])["env_steps_per_s"])


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
