"""The project's own commands, called with the interpreter that has the environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from surreal.distributed import RedisClient
from surreal.replay.stream.info import replay_info

_EVALUATE = """
import json, sys, surreal
policy = surreal.load(sys.argv[1], trust=True)
found = surreal.evaluate(policy, episodes=int(sys.argv[2]), seed=int(sys.argv[3]))
print(json.dumps([found.success_ratio, found.mean_length]))
"""


class Programs:
    """Starts commands.

    Args:
        python: interpreter.
    """

    def __init__(self, python: Path | str) -> None:
        self._python = str(python)
        root = str(Path(__file__).parents[2])
        self._environment = {"MUJOCO_GL": "osmesa", "OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": root}

    def call(self, *words: object) -> str:
        """Run `python ...` to its end, and return what it printed."""
        command = [self._python, *map(str, words)]
        ended = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"{words[:4]} failed with exit code {ended.returncode}: {ended.stdout[-2000:]}")
        return ended.stdout

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen([self._python, *map(str, words)], env=self._environment, text=True)

    def evaluate(self, policy: Path, episodes: int, seed: int) -> tuple[float, float]:
        """Play fresh episodes; return the share of successes, and the mean length."""
        success, length = json.loads(self.call("-c", _EVALUATE, policy, episodes, seed).splitlines()[-1])
        return float(success), float(length)


def wait_for_steps(client: RedisClient, run: subprocess.Popen[str], steps: int) -> None:
    """Wait until a run has stored as many env steps."""
    while replay_info(client).steps < steps:
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {run.returncode} before {steps} env steps")
        time.sleep(0.5)
