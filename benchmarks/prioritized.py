"""Measure how fast a prioritized replay samples, gathers and updates batches of 256, compared with cpprb (C++).

    python -m benchmarks.prioritized [--rounds N] [--seconds S] [--sizes 10000 1000000] [--peer-python PATH]

Surreal's side is the public path: `replay.step()` samples and gathers, `dequeue()` returns tensors, and
`update_priorities()` takes that batch's errors. The experience came through Redis before. Both sides have one thread,
transitions of 4 float32, and a different priority for each transition. The peer is a process in a separate virtual
environment, made under .cache when needed. If this Python has no cpprb, only Surreal's results are reported.
"""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from benchmarks.alone import alone
from benchmarks.harness import alternate, report
from benchmarks.peers import CPPRB, Peer, find_python, skip
from benchmarks.transport import make_batch
from surreal.base.types import SampleInfo
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.replay import PrioritizedReplay

BATCH_SIZE = 256


def fill(client: RedisClient, size: int) -> PrioritizedReplay:
    """Return a replay without threads that holds `size` transitions, each with a different priority."""
    replay = PrioritizedReplay(client, batch_size=BATCH_SIZE, capacity=size, start_size=size, prefetch=1, seed=0)
    sender = ExpSender(client, chunk_steps=8192, max_delay_s=60)
    batch, action = make_batch((4,), np.float32, 100)
    for _ in range(0, size + 100, 100):  # a step is complete once its next observation arrives
        sender.send_batch(batch, action)
    sender.flush()
    sender.close()
    while len(replay) < size or not replay.pointer_queue.has_caught_up.is_set():
        replay.pointer_queue.enqueue_step()
        while len(replay.pointer_queue):
            replay.step(0.0)
    rng = np.random.default_rng(0)
    for numbers in np.array_split(np.arange(replay.alive.start, replay.alive.stop), max(size // 10_000, 1)):
        replay.update_priorities(SampleInfo(numbers, numbers, numbers), rng.exponential(size=len(numbers)))
    while replay.dequeue(0.0) is None:
        replay.step(0.0)
    return replay


def measure(replay: PrioritizedReplay, seconds: float) -> float:
    """Return batches a second."""
    errors = [np.random.default_rng(i).exponential(size=BATCH_SIZE).astype(np.float32) for i in range(64)]
    number, started_s = 0, perf_counter()
    while perf_counter() - started_s < seconds:
        replay.step(0.0)
        batch = replay.dequeue(0.0)
        if batch is None:
            raise RuntimeError("a batch was not ready")
        replay.update_priorities(batch.sample_info, errors[number % 64])
        number += 1
    return number / (perf_counter() - started_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a round")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000], help="transitions stored")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has cpprb")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with EmbeddedRedis(maxmemory_bytes=2 << 30) as server:
        clients = [RedisClient(server.address, run=f"prioritized-{uuid.uuid4().hex[:8]}") for _ in args.sizes]
        replays = {size: fill(client, size) for size, client in zip(args.sizes, clients, strict=True)}
        small, large = min(replays), max(replays)
        mine, base = alternate(
            lambda: measure(replays[large], args.seconds), lambda: measure(replays[small], args.seconds), args.rounds
        )
        growth = [round(b / a, 3) for a, b in zip(mine, base, strict=True)]
        more = {"time_ratio": float(np.median(growth)), "time_ratio_aim": "<= 2.0"}
        report(f"prioritized growth {small} to {large}", "batches/s", mine, base, aim=0.5, **more)
        found = find_python(CPPRB, args.peer_python)
        if isinstance(found, str):
            skip("prioritized against cpprb", found)
            return
        peer = Peer("cpprb_peer.py", found)
        for size, replay in replays.items():
            peer.ask(f"fill {size}")
            compare(replay, peer, size, args.rounds, args.seconds)
        peer.close()


def compare(replay: PrioritizedReplay, peer: Peer, size: int, rounds: int, seconds: float) -> None:
    mine, theirs = alternate(lambda: measure(replay, seconds), lambda: float(peer.ask(f"run {size} {seconds}")), rounds)
    more = {"batch": BATCH_SIZE, "ms_a_batch": round(1e3 / float(np.median(mine)), 4)}
    report(f"prioritized draw + gather + update at {size}, against cpprb", "batches/s", mine, theirs, aim=1.0, **more)


if __name__ == "__main__":
    with alone():
        main()
