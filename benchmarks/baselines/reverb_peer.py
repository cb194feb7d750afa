"""The peer of `benchmarks.replay`: Reverb's server and this client, in separate processes and an environment.

It does not use Surreal. It reads commands from its standard input, one JSON object a line, and answers each with one
line of JSON:

    fill     size, shape, dtype,       starts a server, inserts, and tries ways to sample -> the best way
             batch_size, frames
    sample   seconds                   batches, as NumPy arrays                           -> transitions/s
    insert   seconds                   items, at capacity                                 -> transitions/s
    close                              ends the server                                    -> "ok"

Observations are all ones, or stacks of successive frames from the .npy file `frames`.

As in Acme's adders, the writer appends each step once, and an item (obs, action, reward, discount, next_obs) refers to
two of them. Batches come from a `TrajectoryDataset` with prefetching over gRPC, as in a run with a learner and a replay
server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import reverb
import tensorflow as tf

_TABLE = "transitions"
_SERVER = """
import sys, reverb
table = reverb.Table("transitions", reverb.selectors.Uniform(), reverb.selectors.Fifo(), max_size=int(sys.argv[1]),
                     rate_limiter=reverb.rate_limiters.MinSize(1))
server = reverb.Server([table])
print(server.port, flush=True)
server.wait()
"""


class Buffer:
    def fill(self, size: int, shape: list[int], dtype: str, batch_size: int, frames: str | None) -> dict[str, int]:
        command = [sys.executable, "-c", _SERVER, str(size)]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.server.stdout is None:
            raise RuntimeError("the server has no output")
        self.address = f"localhost:{int(self.server.stdout.readline())}"
        self.client = reverb.Client(self.address)
        self.obs, self.batch_size = np.ones((1, *shape), dtype), batch_size
        if frames is not None:
            windows = np.lib.stride_tricks.sliding_window_view(np.load(frames), shape[0], axis=0)
            self.obs = np.moveaxis(windows, -1, 1)
        self._insert(lambda number, _: number < size + 1)
        # The best way to sample depends on the machine and on the size of a row.
        ways = [{"workers": w, "in_flight": f} for w in (1, 2, 4) for f in (100, 2 * batch_size)]
        rates = []
        for way in ways:
            self.batches = self._open(**way)
            rates.append(self.sample(1.0))
        best = ways[int(np.argmax(rates))]
        self.batches = self._open(**best)
        return best

    def _insert(self, goes_on: Any) -> int:
        number, started_s = 0, time.perf_counter()
        step = {"action": np.int64(0), "reward": np.float32(1), "discount": np.float32(1)}
        with self.client.trajectory_writer(num_keep_alive_refs=3) as writer:
            while goes_on(number, time.perf_counter() - started_s):
                writer.append({"obs": self.obs[number % len(self.obs)], **step})
                if number:
                    past = writer.history
                    item = {name: past[name][-2] for name in past} | {"next_obs": past["obs"][-1]}
                    writer.create_item(_TABLE, 1.0, item)
                number += 1
                if number % 200 == 0:
                    writer.flush(block_until_num_items=200)
            writer.flush()
        return number

    def _open(self, workers: int, in_flight: int) -> Any:
        obs = tf.TensorSpec(self.obs.shape[1:], self.obs.dtype)
        scalar = tf.TensorSpec((), tf.float32)
        specs = {"obs": obs, "next_obs": obs, "action": tf.TensorSpec((), tf.int64)}
        specs |= {"reward": scalar, "discount": scalar}
        dataset = reverb.TrajectoryDataset(
            self.address,
            _TABLE,
            dtypes={name: spec.dtype for name, spec in specs.items()},
            shapes={name: spec.shape for name, spec in specs.items()},
            max_in_flight_samples_per_worker=in_flight,
            num_workers_per_iterator=workers,
        )
        return dataset.batch(self.batch_size, drop_remainder=True).prefetch(4).as_numpy_iterator()

    def sample(self, seconds: float) -> float:
        for _ in range(6):  # batches prefetched while another replay was measured
            next(self.batches)
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            next(self.batches)
            number += 1
        return number * self.batch_size / (time.perf_counter() - started_s)

    def insert(self, seconds: float) -> float:
        started_s = time.perf_counter()
        number = self._insert(lambda _, elapsed_s: elapsed_s < seconds)
        return number / (time.perf_counter() - started_s)

    def close(self) -> str:
        self.batches = None
        self.server.kill()
        self.server.wait()
        return "ok"


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # keep the output of libraries out of the answers
    buffer = Buffer()
    for line in sys.stdin:
        arguments = json.loads(line)
        answer = getattr(buffer, arguments.pop("command"))(**arguments)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
