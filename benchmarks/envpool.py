"""Compare the env steps/s of EnvPool with those of gymnasium, with random actions.

    python -m benchmarks.envpool [ENV_ID ...] [--envs N] [--steps N] [--rounds N]

`threads 1` and `threads 2` step all environments before each batch. `half` returns the half that was ready first, as in
a run without rounds. The baseline is the pool `local`, or `vector` for Atari, which is ale-py's C++ implementation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.peers import rotate
from surreal.envs import EnvPool, LocalEnvPool, ThreadedEnvPool, WrapperSpec, make_env, make_vector_env

_IDS = ("CartPole-v1", "HalfCheetah-v5", "dm_control/cheetah-run-v0", "ALE/Pong-v5")
ATARI: dict[str, Any] = {
    "wrappers": [WrapperSpec("atari", {}), WrapperSpec("life_loss", {}), WrapperSpec("reward_sign", {})],
    "frame_stack": 4,
}


def main(argv: Sequence[str]) -> None:
    """Compare, environment by environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=_IDS, metavar="ENV_ID")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000, help="env steps of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(argv)
    for env_id in asked.ids:
        options = ATARI if env_id.startswith("ALE/") else {}
        env = make_env(env_id, **options)
        make = partial(
            ThreadedEnvPool,
            env_id,
            asked.envs,
            observation_space=env.observation_space,
            action_space=env.action_space,
            seed=1,
            **options,
        )
        ours: dict[str, EnvPool] = {
            "threads 1": make(num_threads=1, batch_size=asked.envs),
            "threads 2": make(num_threads=2, batch_size=asked.envs),
            "threads 2, half": make(num_threads=2),
        }
        pools = {**ours, "baseline": _baseline(env_id, asked.envs, options)}
        measures: dict[str, Callable[[], float]] = {
            name: partial(rate, pool, asked.steps) for name, pool in pools.items()
        }
        found = rotate(measures, asked.rounds)
        for name in ours:
            report(f"{env_id}, {name}", "env steps/s", found[name], found["baseline"], aim=None)
        for pool in pools.values():
            pool.close()


def _baseline(env_id: str, num_envs: int, options: dict[str, Any]) -> EnvPool:
    if env_id.startswith("ALE/"):
        return LocalEnvPool(make_vector_env(env_id, num_envs, **options), seed=1)
    return LocalEnvPool([partial(make_env, env_id, **options)] * num_envs, seed=1)


def rate(pool: EnvPool, steps: int) -> float:
    """Return env steps/s over `steps` random actions."""
    rng, space = np.random.default_rng(0), pool.action_space
    began_s, taken = time.perf_counter(), 0
    while taken < steps:
        batch = pool.recv()
        live = batch.env_ids[batch.num_last :]
        if isinstance(space, gymnasium.spaces.Discrete):
            pool.send(rng.integers(space.n, size=len(live)), live)
        else:
            pool.send(rng.uniform(-1, 1, (len(live), *(space.shape or ()))).astype(np.float32), live)
        taken += len(live)
    return taken / (time.perf_counter() - began_s)


if __name__ == "__main__":
    with alone():
        main(sys.argv[1:])
