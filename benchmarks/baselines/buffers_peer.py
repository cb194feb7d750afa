"""The peers of `benchmarks.replay` that keep transitions in their process: a library's own buffer, filled and sampled.

It has nothing of Surreal's. Reads commands from its standard input, a JSON object a line, and answers each with one
line of JSON:

    fill     library ("sb3", "cpprb" or "rlox"), size, width, batch_size                      -> "ok"
    sample   seconds         batches of that buffer, again and again                          -> transitions a second

Transitions are obs and next_obs [width] float32, action, reward and the end of the episode. SB3 returns tensors, the
others NumPy arrays.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

_ROWS = 1000


def fill_sb3(size: int, width: int, batch_size: int) -> Callable[[], Any]:
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    torch.set_num_threads(1)
    box = spaces.Box(-1.0, 1.0, (width,), np.float32)
    buffer = ReplayBuffer(size // _ROWS, box, spaces.Discrete(2), device="cpu", n_envs=_ROWS)
    for obs, action, scalar in _rows(size, width):
        buffer.add(obs, obs, action, scalar, scalar, [{}] * _ROWS)
    return lambda: buffer.sample(batch_size)


def fill_cpprb(size: int, width: int, batch_size: int) -> Callable[[], Any]:
    from cpprb import ReplayBuffer

    vector, scalars = {"shape": width, "dtype": np.float32}, {"dtype": np.float32}
    columns = {"obs": vector, "next_obs": vector, "action": {"dtype": np.int64}, "reward": scalars, "done": scalars}
    buffer = ReplayBuffer(size, columns)
    for obs, action, scalar in _rows(size, width):
        buffer.add(obs=obs, next_obs=obs, action=action, reward=scalar, done=scalar)
    return lambda: buffer.sample(batch_size)


def fill_rlox(size: int, width: int, batch_size: int) -> Callable[[], Any]:
    from rlox import ReplayBuffer

    buffer, seeds = ReplayBuffer(size, width, 1), count()
    ends = np.zeros(_ROWS, np.uint8)
    for obs, action, scalar in _rows(size, width):
        buffer.push_batch(obs.ravel(), obs.ravel(), action.astype(np.float32), scalar, ends, ends)
    return lambda: buffer.sample(batch_size, next(seeds))


def _rows(size: int, width: int) -> Iterator[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    for _ in range(0, size, _ROWS):
        yield rng.random((_ROWS, width), np.float32), np.zeros(_ROWS, np.int64), np.zeros(_ROWS, np.float32)


def rate(sample: Callable[[], Any], batch_size: int, seconds: float) -> float:
    number, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        sample()
        number += 1
    return number * batch_size / (time.perf_counter() - started_s)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a library may print: only answers go to the pipe
    fills = {"sb3": fill_sb3, "cpprb": fill_cpprb, "rlox": fill_rlox}
    sample: Callable[[], Any] = list
    batch_size = 0
    for line in sys.stdin:
        arguments = json.loads(line)
        answer: Any = "ok"
        if arguments.pop("command") == "fill":
            batch_size = arguments["batch_size"]
            sample = fills[arguments.pop("library")](**arguments)
        else:
            answer = rate(sample, batch_size, arguments["seconds"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
