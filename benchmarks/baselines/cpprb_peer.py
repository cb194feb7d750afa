"""The peer of `benchmarks.prioritized`: cpprb's prioritized buffer (C++), in a separate process and environment.

It does not use Surreal. It reads lines from its standard input, and answers each with one line:

    fill N              store N transitions with different priorities        -> "ok"
    run N SECONDS       sample and update batches of 256 from that buffer    -> batches a second
"""

from __future__ import annotations

import sys
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

BATCH_SIZE = 256
COLUMNS = {
    "obs": {"shape": 4, "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "next_obs": {"shape": 4, "dtype": np.float32},
    "done": {"dtype": np.float32},
}


def fill(size: int) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(size, COLUMNS, alpha=0.6)
    rng = np.random.default_rng(0)
    for begin in range(0, size, 10_000):
        count = min(10_000, size - begin)
        obs, scalar = rng.random((count, 4), np.float32), np.zeros(count, np.float32)
        buffer.add(obs=obs, action=np.zeros(count, np.int64), reward=scalar, next_obs=obs, done=scalar)
        buffer.update_priorities(np.arange(begin, begin + count), rng.exponential(size=count))
    return buffer


def run(buffer: PrioritizedReplayBuffer, seconds: float) -> float:
    errors = [np.random.default_rng(i).exponential(size=BATCH_SIZE).astype(np.float32) for i in range(64)]
    number, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        batch = buffer.sample(BATCH_SIZE, beta=0.4)
        buffer.update_priorities(batch["indexes"], errors[number % 64])
        number += 1
    return number / (time.perf_counter() - started_s)


def main() -> None:
    buffers: dict[int, PrioritizedReplayBuffer] = {}
    for line in sys.stdin:
        command, size, *rest = line.split()
        if command == "fill":
            buffers[int(size)] = fill(int(size))
            print("ok", flush=True)
        else:
            print(run(buffers[int(size)], float(rest[0])), flush=True)


if __name__ == "__main__":
    main()
