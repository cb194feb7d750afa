"""Time that new parameters take from the learner to an agent on the same machine, compared with redis-py alone.

    python -m benchmarks.broadcast [--rounds N] [--before TREE]

* broadcast: from the call of `TorchBroadcaster.broadcast` until the model of a `TorchListener` in another process has
  the new parameters, ms. Baseline: the same number of bytes, already encoded, by redis-py: SET and PUBLISH in one
  process, a blocking subscription and GET in the other. Aims: <= 80 ms for 10^7 float32 parameters, and <= 2 ms above
  the baseline for 10^5. With `--before`, the code of another source tree takes turns with both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import redis
import torch
from torch import nn

from surreal.base.pytorch import Module
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.listener import TorchListener
from surreal.distributed.server.embedded import EmbeddedRedis


class Aim(NamedTuple):
    """Upper bounds, ms; None: not an aim."""

    value: float | None = None
    above_baseline: float | None = None


#: by the width of four square layers
AIMS = {158: Aim(above_baseline=2.0), 1581: Aim(value=80.0)}
KEY, CHANNEL = "raw:parameters", "raw:notices"
WARM_UP = 3


class Layers(Module):
    """Four square layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))


def say_time() -> None:
    print(time.monotonic_ns(), flush=True)


def learn(path: str, run: str, width: int) -> Callable[[], None]:
    model = Layers(width)
    broadcaster = TorchBroadcaster(RedisClient(f"unix://{path}", run=run), model)

    def publish() -> None:
        with torch.no_grad():
            model.layers[0].bias += 1.0
        say_time()
        broadcaster.broadcast()

    return publish


def act(path: str, run: str, width: int) -> Callable[[], None]:
    model = Layers(width)
    listener = TorchListener(RedisClient(f"unix://{path}", run=run), model)
    listener.run_listener_thread()

    def receive() -> None:
        model.wait_for_version(model.version + 1, 60.0)
        say_time()

    return receive


def learn_raw(path: str, _run: str, width: int) -> Callable[[], None]:
    client = redis.Redis(unix_socket_path=path)
    data = os.urandom(4 * sum(parameter.numel() for parameter in Layers(width).parameters()))

    def publish() -> None:
        say_time()
        client.set(KEY, data)
        client.publish(CHANNEL, "1")

    return publish


def act_raw(path: str, _run: str, _width: int) -> Callable[[], None]:
    client = redis.Redis(unix_socket_path=path)
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(CHANNEL)
    notices = pubsub.listen()

    def receive() -> None:
        next(notices)
        client.get(KEY)
        say_time()

    return receive


ROLES = {role.__name__: role for role in (learn, act, learn_raw, act_raw)}


class Worker:
    """A process with one role, which acts once per line of its input and prints one time."""

    def __init__(self, tree: Path, role: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, role, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self) -> None:
        self.process.stdin.write("\n")

    def time_ns(self) -> int:
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10.0)


def work(role: str, path: str, run: str, width: str) -> None:
    torch.set_num_threads(1)
    step = ROLES[role](path, run, int(width))
    for _ in sys.stdin:
        step()


def latency_ms(learner: Worker, agent: Worker) -> float:
    agent.begin()
    time.sleep(0.05)  # until it waits
    learner.begin()
    started_ns = learner.time_ns()
    return (agent.time_ns() - started_ns) / 1e6


def measure(path: str, width: int, rounds: int, trees: dict[str, Path]) -> None:
    with ExitStack() as stack:
        pairs = {
            name: [Worker(tree, role, path, f"{name}-{width}", width) for role in ("learn", "act")]
            for name, tree in trees.items()
        }
        pairs["baseline"] = [Worker(trees["now"], role, path, "", width) for role in ("learn_raw", "act_raw")]
        for pair in pairs.values():
            for worker in pair:
                stack.callback(worker.close)
        times: dict[str, list[float]] = {name: [] for name in pairs}
        for _ in range(WARM_UP + rounds):
            for name, pair in pairs.items():
                times[name].append(latency_ms(*pair))
    kept = {name: values[WARM_UP:] for name, values in times.items()}
    line = {
        "name": f"broadcast {4 * width * (width + 1)} float32",
        "value": round(statistics.median(kept["now"]), 2),
        "unit": "ms",
        "aim": AIMS[width].value,
        "above_baseline": round(
            statistics.median(a - b for a, b in zip(kept["now"], kept["baseline"], strict=True)), 2
        ),
        "above_baseline_aim": AIMS[width].above_baseline,
        "quartiles": {name: [round(each, 2) for each in statistics.quantiles(times)] for name, times in kept.items()},
        "rounds": rounds,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def broadcast(path: str, rounds: int, before: Path | None = None) -> None:
    """Measure both sizes at the Redis of a unix socket."""
    trees = {"now": Path(__file__).parents[1]}
    if before is not None:
        trees["before"] = before.resolve()
    for width in AIMS:
        measure(path, width, rounds, trees)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--before", type=Path, help="another source tree")
    arguments = parser.parse_args()
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server:
        broadcast(server.address.removeprefix("unix://"), arguments.rounds, arguments.before)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ROLES:
        work(*sys.argv[1:])
    else:
        main()
