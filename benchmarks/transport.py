"""Measure how fast experience enters Redis and leaves it as batches, compared with a bare client.

`benchmarks.broadcast` is a part of it: parameters, from the learner to an agent.

    python -m benchmarks.transport [--rounds N] [--seconds S]

* insert: `ExpSender.send_batch` from one process, counted when acknowledged, while a replay in another process reads,
  decodes and inserts. The baseline is a raw socket that sends prepared EVALSHA calls of the same bytes, while a bare
  process reads them (XREAD, GET) and drops them. `ratio_unread` compares with that raw socket without a reader, which
  on two cores is one busy process less.
* single step: the time of one `ExpSender.send` (chunks included) compared with one `env.step` of gymnasium's CartPole.
* waiting: the traffic of 16 senders without credit, with chunks of 1 MB; aim: <= 100 kB/s in total.
* sample: batches from `batch_iterator()`, compared with a raw client that GETs the same number of bytes, pipelined.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
import uuid
from contextlib import suppress
from multiprocessing.synchronize import Event

import gymnasium
import numpy as np
import torch

from benchmarks.alone import alone
from benchmarks.baselines import raw_reader
from benchmarks.baselines.raw_client import RawClient
from benchmarks.broadcast import broadcast
from benchmarks.harness import alternate, report
from surreal.base.errors import StoppedError
from surreal.base.types import Action, StepBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.replay import UniformReplay

CASES = {
    # name: (obs shape, dtype, environments, chunk_max_bytes, replay capacity, aim)
    "4 float32": ((4,), np.float32, 256, 1 << 20, 100_000, 0.5),
    "84x84 uint8": ((84, 84), np.uint8, 16, 1 << 20, 4_000, 0.6),
}


def make_batch(shape: tuple[int, ...], dtype: type, num_envs: int) -> tuple[StepBatch, Action]:
    """Make one vector step in mid-episode."""
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 255, (num_envs, *shape)).astype(dtype)
    no, yes = np.zeros(num_envs, np.bool_), np.ones(num_envs, np.bool_)
    kind, env_ids = np.ones(num_envs, np.uint8), np.arange(num_envs)
    reward = np.ones(num_envs, np.float32)
    batch = StepBatch(kind, env_ids, obs, reward, no, no, yes, yes, 0, {}, np.zeros(0, np.int64))
    return batch, Action(np.zeros(num_envs, np.int64), {}, 1)


def read_forever(address: str, run: str, capacity: int, stop: Event) -> None:
    """Run a learner's replay that reads everything and never samples."""
    replay = UniformReplay(RedisClient(address, run=run), capacity=capacity, start_size=capacity)
    replay.start_threads()
    while not stop.wait(0.1):
        replay.check()
    replay.stop()
    replay.join()


def insert(address: str, path: str, case: str, rounds: int, seconds: float) -> None:
    shape, dtype, num_envs, max_bytes, capacity, aim = CASES[case]
    run = f"insert-{uuid.uuid4().hex[:8]}"
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    reader = spawn.Process(target=read_forever, args=(address, run, capacity, stop))
    reader.start()
    batch, action = make_batch(shape, dtype, num_envs)
    client = RedisClient(address, run=run)
    sender = ExpSender(client, chunk_steps=8192, chunk_max_bytes=max_bytes, max_delay_s=60)
    while not client.redis.exists(client.shard_keys().lease):
        time.sleep(0.05)

    def ours() -> float:
        before, started_s = sender.metrics(), time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            for _ in range(32):
                sender.send_batch(batch, action)
        sender.flush()
        after = sender.metrics()
        return (after["sender/steps_total"] - before["sender/steps_total"]) / (time.perf_counter() - started_s)

    ours()
    metrics = sender.metrics()
    steps_a_chunk = metrics["sender/steps_total"] / metrics["sender/chunks_total"]
    bytes_a_chunk = int(metrics["sender/bytes_total"] / metrics["sender/chunks_total"])
    block = bytes(int(steps_a_chunk * np.prod(shape) * np.dtype(dtype).itemsize))
    raw = RawClient(path)
    calls = [raw.packed_store(i, bytes(bytes_a_chunk - len(block)), block) for i in range(64)]

    def unread() -> float:
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            raw.store(calls[number % 64])
            number += 1
        return number * steps_a_chunk / (time.perf_counter() - started_s)

    unread_rates: list[float] = []

    def theirs() -> float:
        unread_rates.append(unread())
        is_over = spawn.Event()
        other = spawn.Process(target=raw_reader.read_forever, args=(path, is_over))
        other.start()
        while not (clients := raw.call(b"CLIENT", b"LIST", b"TYPE", b"normal")) or b"cmd=xread" not in clients:
            time.sleep(0.05)
        rate = unread()
        is_over.set()
        other.join()
        return rate

    mine, bare = alternate(ours, theirs, rounds)
    alone = [a / b for a, b in zip(mine, unread_rates[1:], strict=True)]
    megabytes = np.median(mine) * bytes_a_chunk / steps_a_chunk / 1e6
    more = {
        "ratio_unread": round(float(np.median(alone)), 3),
        "ratio_unread_best": round(max(mine) / max(unread_rates[1:]), 3),
        "MB/s": round(float(megabytes), 1),
        "steps_a_chunk": round(steps_a_chunk),
        "environments": num_envs,
    }
    report(f"insert {case}", "transitions/s", mine, bare, aim=aim, **more)
    sender.close()
    stop.set()
    reader.join(10)
    client.delete_run()


def single_step(address: str, rounds: int, steps: int = 20_000) -> None:
    run = f"single-{uuid.uuid4().hex[:8]}"
    client = RedisClient(address, run=run)
    sender = ExpSender(client)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    seen = [obs + np.float32(i) for i in range(1000)]

    def ours() -> float:
        last = seen[-1]
        started_s = time.perf_counter()
        for i in range(steps):
            new = seen[i % 1000]
            sender.send([last, new], i & 1, 1.0, False)
            last = new
        return steps / (time.perf_counter() - started_s)

    def theirs() -> float:
        env.reset()
        spent_s, done = 0.0, 0
        while done < steps:
            started_s = time.perf_counter()
            for i in range(8):  # alternating pushes keep the pole up for longer
                env.step(i & 1)
            spent_s += time.perf_counter() - started_s
            env.reset()
            done += 8
        return steps / spent_s

    mine, bare = alternate(ours, theirs, rounds)
    times = [b / a for a, b in zip(mine, bare, strict=True)]
    more = {"time_ratio": round(float(np.median(times)), 3), "time_ratio_aim": "<= 0.5"}
    report("send one step", "steps/s", mine, bare, aim=2.0, **more)
    sender.close()
    client.delete_run()


def sample(address: str, path: str, case: str, rounds: int, seconds: float) -> None:
    shape, dtype, num_envs, max_bytes, capacity, _ = CASES[case]
    batch_size = 256
    client = RedisClient(address, run=f"sample-{uuid.uuid4().hex[:8]}")
    batch, action = make_batch(shape, dtype, num_envs)
    sender = ExpSender(client, chunk_max_bytes=max_bytes)
    replay = UniformReplay(client, batch_size=batch_size, capacity=capacity, start_size=capacity // 2)
    replay.start_threads()
    for _ in range(capacity * 3 // 4 // num_envs):
        sender.send_batch(batch, action)
    sender.flush()
    batches = replay.batch_iterator()
    next(batches)

    def ours() -> float:
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            next(batches)
            number += 1
        return number * batch_size / (time.perf_counter() - started_s)

    row_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = RawClient(path)
    raw.call(b"SET", b"raw:row", bytes(row_bytes))
    gets = raw.pack(b"GET", b"raw:row") * (2 * batch_size)
    reply_bytes = (len(b"$%d\r\n" % row_bytes) + row_bytes + 2) * 2 * batch_size
    buffer = bytearray(reply_bytes)

    def theirs() -> float:
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            raw.sock.sendall(gets)
            view = memoryview(buffer)
            while view:
                view = view[raw.sock.recv_into(view) :]
            number += 1
        return number * batch_size / (time.perf_counter() - started_s)

    mine, bare = alternate(ours, theirs, rounds)
    more = {"MB/s": round(float(np.median(mine)) * 2 * row_bytes / 1e6, 1), "batch": batch_size}
    report(f"sample {case}", "transitions/s", mine, bare, aim=1.0, **more)
    sender.close()
    replay.stop()
    replay.join()
    client.delete_run()


def waiting(address: str, seconds: float, num_senders: int = 16) -> None:
    stop, run = threading.Event(), f"waiting-{uuid.uuid4().hex[:8]}"
    client = RedisClient(address, run=run)
    batch, action = make_batch((84, 84), np.uint8, 16)

    def send() -> None:
        sender = ExpSender(RedisClient(address, run=run), is_limited=True, stop=stop, max_delay_s=60)
        with suppress(StoppedError):
            while True:
                sender.send_batch(batch, action)
        sender.discard()

    threads = [threading.Thread(target=send, name=f"sender-{i}") for i in range(num_senders)]
    for thread in threads:
        thread.start()

    def traffic() -> int:
        stats = client.redis.info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])

    time.sleep(1.0)  # until each sender has its longest pause between two requests
    before, started_s = traffic(), time.perf_counter()
    time.sleep(max(seconds, 3.0))
    rate = (traffic() - before) / (time.perf_counter() - started_s)
    stop.set()
    for thread in threads:
        thread.join()
    client.delete_run()
    line = {"name": "waiting", "value": round(rate / 1e3, 1), "unit": "kB/s", "aim": 100.0, "senders": num_senders}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server:
        path = server.address.removeprefix("unix://")
        for case in CASES:
            insert(server.address, path, case, args.rounds, args.seconds)
        single_step(server.address, args.rounds)
        waiting(server.address, args.seconds)
        for case in CASES:
            sample(server.address, path, case, args.rounds, args.seconds)
        broadcast(path, 3 * args.rounds)


if __name__ == "__main__":
    with alone():
        main()
