"""The most env steps a second that these cores allow: emulation and the network's arithmetic, and nothing else.

An env step costs one emulated step (EnvPool on all cores) and the multiplications of one forward pass to act and, for
each epoch, of a forward and a backward pass, which counts as two (all cores, at the rate of large matrices). The limit
is the rate at which both fit one after the other.
"""

from __future__ import annotations

import os
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.envpool import ATARI, rate
from surreal.config import load_config
from surreal.envs import ThreadedEnvPool, make_env
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces

_WIDTH = 1024  # of the matrices
_PRODUCTS = 20
_ENV_STEPS = 4000


class Limit:
    """The limit of a preset that learns Pong.

    Args:
        preset: name of the preset, which gives network and environment.
        epochs: number of times that each step is learned from.
        envs: number of environments.
    """

    def __init__(self, preset: str, epochs: int, envs: int) -> None:
        config = load_config(preset)
        spaces = build_spaces(config)
        model = build_model(config, spaces)
        env = make_env(config.env.id, **ATARI)
        self._flops = count_flops(model, env.observation_space.shape or ()) * (1 + 3 * epochs)
        self._pool = ThreadedEnvPool(
            config.env.id,
            envs,
            observation_space=env.observation_space,
            action_space=env.action_space,
            seed=1,
            num_threads=os.cpu_count(),
            batch_size=envs,
            **ATARI,
        )
        env.close()

    def measure(self) -> float:
        """Return env steps/s."""
        return 1 / (1 / rate(self._pool, _ENV_STEPS) + self._flops / measure_flops_s())


def count_flops(model: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """Return the floating-point operations of one forward pass with one row."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros((1, *shape), dtype=torch.uint8))
    return int(counter.get_total_flops())


def measure_flops_s() -> float:
    """Return the floating-point operations a second of large products of matrices, on all cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    left = right = torch.ones(_WIDTH, _WIDTH)
    _ = left @ right
    began_s = time.perf_counter()
    for _ in range(_PRODUCTS):
        _ = left @ right
    seconds = time.perf_counter() - began_s
    torch.set_num_threads(threads)
    return float(_PRODUCTS * 2 * _WIDTH**3 / seconds)
