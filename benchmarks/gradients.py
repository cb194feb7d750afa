"""Measure how fast gradients travel through Redis to a parameter server, compared with a bare client.

    python -m benchmarks.gradients [--rounds N] [--seconds S] [--sizes 100000 10000000]

* rate: `GradientSender.push` in one process and `GradientQueue.take` in another; gradients count when taken. The
  baseline is raw sockets that SET and GET the same number of bytes, with the same number of gradients in flight.
* latency: from a push until the resulting version is in the agent's model (check, queue, decode, Adam, encode, publish,
  fetch, load). The baseline is raw sockets that send the same number of bytes there and back, and ignore them.
* all-reduce: the same bytes through torch.distributed with gloo between two processes, which must meet for it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
import uuid
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import torch
from torch import nn

from benchmarks.alone import alone
from benchmarks.baselines import raw_gradients
from benchmarks.harness import alternate, report
from surreal.base.pytorch import Module
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.gradients.queue import GradientQueue
from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.listener import TorchListener
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.learner import GradientLearner
from surreal.learner.parameter_server.server import ParameterServer

SPAWN = multiprocessing.get_context("spawn")
UNDER_WAY = 4  #: gradients in Redis at most


class Net(Module):
    """Four layers with about `parameters` parameters in total."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        width = int((parameters / 4) ** 0.5)
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))


class NoLoss(GradientLearner):
    """A learner whose batches are gradients."""

    def learn(self, i: int, batch: Any) -> dict[str, Any]:
        return {}


def learner_of(parameters: int) -> NoLoss:
    torch.manual_seed(0)
    learner = NoLoss(Net(parameters))
    learner.state_dict()  # creates the optimizer's state
    return learner


def gradients_of(learner: NoLoss) -> dict[str, dict[str, torch.Tensor]]:
    groups = learner.parameter_groups()
    return {group: {name: 1e-3 * torch.randn_like(each) for name, each in groups[group].items()} for group in groups}


def take_forever(address: str, run: str, parameters: int, taken: Synchronized[int]) -> None:
    torch.set_num_threads(1)
    queue = GradientQueue(RedisClient(address, run=run))
    queue.expect(learner_of(parameters).parameter_groups())
    while True:
        if queue.take(1.0) is not None:
            taken.value += 1


def serve_forever(address: str, run: str, parameters: int) -> None:
    torch.set_num_threads(1)
    client = RedisClient(address, run=run)
    learner = learner_of(parameters)
    queue, server = GradientQueue(client), ParameterServer(learner)
    queue.expect(learner.parameter_groups())
    broadcaster = TorchBroadcaster(client, learner.model)
    broadcaster.broadcast()
    while True:
        gradient = queue.take(1.0)
        if gradient is not None and server.step(gradient):
            broadcaster.broadcast()
        broadcaster.maintain()


@contextmanager
def running(target: Any, *args: Any) -> Any:
    """Run a process during a `with` block."""
    process = SPAWN.Process(target=target, args=args, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def wait_for(taken: Synchronized[int], number: int) -> None:
    while taken.value < number:
        time.sleep(0.0002)


def rate(address: str, path: str, parameters: int, rounds: int, seconds: float) -> None:
    client = RedisClient(address, run=f"rate-{uuid.uuid4().hex[:8]}")
    gradients = gradients_of(learner_of(parameters))
    size = sum(4 * each.numel() for each in gradients["model"].values())
    sender = GradientSender(client, max_bytes=UNDER_WAY * (size + 4096))
    raw, data = raw_gradients.RawSocket(path), bytes(size)
    for slot in range(UNDER_WAY):
        raw.short(b"RPUSH", b"raw:free", b"raw:%d" % slot)
    taken, taken_raw = SPAWN.Value("q", 0), SPAWN.Value("q", 0)

    def measure(push: Any, counter: Synchronized[int]) -> float:
        before, number, started_s = counter.value, 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            push()
            number += 1
        wait_for(counter, before + number)
        return number / (time.perf_counter() - started_s)

    def push() -> None:
        sender.push(gradients, version=0, env_steps=1)

    def push_raw() -> None:
        raw.put(raw.pop(b"raw:free"), data, b"raw:ready")

    with (
        running(take_forever, address, client.run, parameters, taken),
        running(raw_gradients.take_forever, path, size, taken_raw),
    ):
        push()
        wait_for(taken, 1)
        mine, bare = alternate(lambda: measure(push, taken), lambda: measure(push_raw, taken_raw), rounds)
    more = {"MB/s": round(statistics.median(mine) * size / 1e6, 1), "bytes": size}
    report(
        f"gradients of {parameters:.0e} parameters", "1/s", mine, bare, aim=0.7 if parameters >= 1e6 else None, **more
    )
    clean(client, raw)


def latency(address: str, path: str, parameters: int, rounds: int, number: int) -> None:
    client = RedisClient(address, run=f"latency-{uuid.uuid4().hex[:8]}")
    learner = learner_of(parameters)
    gradients = gradients_of(learner)
    size = sum(4 * each.numel() for each in gradients["model"].values())
    sender, listener = GradientSender(client), TorchListener(client, learner.model)
    raw, data = raw_gradients.RawSocket(path), bytes(size)

    def ours() -> float:
        started_s = time.perf_counter()
        for _ in range(number):
            before = listener.version
            sender.push(gradients, version=before, env_steps=1)
            while listener.version == before:
                listener.step()
        return number / (time.perf_counter() - started_s)

    def theirs() -> float:
        started_s = time.perf_counter()
        for _ in range(number):
            raw.put(b"raw:0", data, b"raw:ready")
            raw.get(raw.pop(b"raw:version"), size)
        return number / (time.perf_counter() - started_s)

    with running(serve_forever, address, client.run, parameters), running(raw_gradients.serve_forever, path, size):
        while listener.version == 0:
            listener.step()
        mine, bare = alternate(ours, theirs, rounds)
    above_ms = [1e3 / a - 1e3 / b for a, b in zip(mine, bare, strict=True)]
    more = {
        "ms": round(1e3 / statistics.median(mine), 2),
        "ms above raw": round(statistics.median(above_ms), 2),
        "ms above raw_best": round(min(above_ms), 2),
        "aim of ms above raw": 2.0 if parameters < 1e6 else None,
    }
    report(f"push to new version, {parameters:.0e} parameters", "1/s", mine, bare, aim=None, **more)
    listener.close()
    clean(client, raw)


def clean(client: RedisClient, raw: raw_gradients.RawSocket) -> None:
    names = [b"raw:%d" % slot for slot in range(UNDER_WAY)]
    raw.short(b"DEL", b"raw:ready", b"raw:free", b"raw:version", b"raw:parameters", *names)
    client.delete_run()


def all_reduce(rank: int, store: str, parameters: int, number: int, results: Any) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    flat = torch.zeros(parameters)
    torch.distributed.all_reduce(flat)
    started_s = time.perf_counter()
    for _ in range(number):
        torch.distributed.all_reduce(flat)
    results.put(number / (time.perf_counter() - started_s))
    torch.distributed.destroy_process_group()


def compare_all_reduce(parameters: int, rounds: int, number: int) -> None:
    rates = []
    for _ in range(rounds):
        results = SPAWN.Queue()
        with tempfile.TemporaryDirectory() as folder:
            args = (f"{folder}/store", parameters, number, results)
            with running(all_reduce, 0, *args), running(all_reduce, 1, *args):
                rates.append(min(results.get(), results.get()))
    more = {"MB/s": round(statistics.median(rates) * 4 * parameters / 1e6, 1)}
    report(f"gloo all-reduce of {parameters:.0e} numbers, two processes", "1/s", rates, rates, aim=None, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**7])
    args = parser.parse_args()
    torch.set_num_threads(1)
    with EmbeddedRedis(maxmemory_bytes=2 << 30) as server:
        path = server.address.removeprefix("unix://")
        for parameters in args.sizes:
            number = max(5, int(args.seconds * 2e7 / parameters))
            rate(server.address, path, parameters, args.rounds, args.seconds)
            latency(server.address, path, parameters, args.rounds, min(number, 200))
            compare_all_reduce(parameters, min(args.rounds, 3), min(number, 200))


if __name__ == "__main__":
    with alone():
        main()
