"""The peer of `benchmarks.replay`: TorchRL's replay buffer, in a separate process and environment.

It does not use Surreal. It reads commands from its standard input, one JSON object a line, and answers each with one
line of JSON:

    fill     storage ("lazy" or "store"), size, shape, dtype, batch_size, socket (of Redis)    -> "ok"
    sample   prefetch (0: none), seconds         batches of that buffer                        -> transitions a second
    extend   rows, seconds                       `rows` at a time, overwriting at capacity     -> transitions a second
    close                                        frees its data, also in Redis                 -> "ok"

Transitions are obs, next_obs (whole stacks of frames), action, reward and discount. `extend` stores thousands of rows
at a time, and sampling has no transforms.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, StoreStorage

_FILL_ROWS_BYTES = 64 << 20


def make_rows(count: int, shape: list[int], dtype: str) -> TensorDict:
    obs = torch.ones((count, *shape), dtype=getattr(torch, dtype))
    action, scalar = torch.zeros(count, dtype=torch.int64), torch.ones(count)
    columns = {"obs": obs, "next_obs": obs.clone(), "action": action, "reward": scalar, "discount": scalar.clone()}
    return TensorDict(columns, [count])


class Buffers:
    """One storage, with one buffer for each number of prefetched batches."""

    def fill(self, storage: str, size: int, shape: list[int], dtype: str, batch_size: int, socket: str) -> str:
        self.shape, self.dtype, self.batch_size = shape, dtype, batch_size
        self.storage: Any = LazyTensorStorage(size)
        if storage == "store":
            self.storage = StoreStorage(size, unix_socket_path=socket)
        self.plain = ReplayBuffer(storage=self.storage, batch_size=batch_size)
        row_bytes = 2 * torch.ones(shape, dtype=getattr(torch, dtype)).nbytes + 16
        rows = make_rows(min(4000, size, max(1, _FILL_ROWS_BYTES // row_bytes)), shape, dtype)
        for begin in range(0, size, len(rows)):
            self.plain.extend(rows[: size - begin])
        self.prefetching: Any = None
        return "ok"

    def sample(self, prefetch: int, seconds: float) -> float:
        buffer = self.plain
        if prefetch:
            if self.prefetching is None:
                self.prefetching = ReplayBuffer(storage=self.storage, batch_size=self.batch_size, prefetch=prefetch)
            buffer = self.prefetching
        for _ in range(prefetch + 2):  # batches prefetched while another replay was measured
            buffer.sample()
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            buffer.sample()
            number += 1
        return number * self.batch_size / (time.perf_counter() - started_s)

    def extend(self, rows: int, seconds: float) -> float:
        batch = make_rows(rows, self.shape, self.dtype)
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            self.plain.extend(batch)
            number += 1
        return number * rows / (time.perf_counter() - started_s)

    def close(self) -> str:
        if isinstance(self.storage, StoreStorage):
            self.storage._storage.clear_redis()
        self.storage = self.plain = self.prefetching = None
        gc.collect()
        return "ok"


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr  # keep the output of libraries out of the answers
    buffers = Buffers()
    for line in sys.stdin:
        arguments = json.loads(line)
        answer = getattr(buffers, arguments.pop("command"))(**arguments)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
