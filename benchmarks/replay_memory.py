"""Measure a replay's memory: bytes for each Atari transition, and its growth under inserting and evicting.

    python -m benchmarks.replay_memory [--sections bytes churn] [--minutes M] [--transitions N] [--game ALE/Pong-v5]

* bytes: frames of a real game (random play, preset `atari-dqn`) go to three servers: uncompressed, lz4 and zstd. The
  report compares Redis's count (`used_memory`) for each transition with one frame, 84x84 bytes. For learners that keep
  observations, compressed or not, it has the bytes allocated and the growth of the process's RSS. Ratios are relative
  to one frame; less is better.
* churn: a process inserts at a steady rate, while a replay at its capacity evicts and samples. The report has Redis's
  used_memory and this process's RSS over time, and their slopes (least squares without the first quarter) as percent
  an hour. Both should be noise around zero.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
import uuid
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.alone import alone
from benchmarks.transport import make_batch
from surreal.base.types import Action, StepKind
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.replay import Replay, UniformReplay
from surreal.run.build.environments import build_pool

_FRAME_BYTES = 84 * 84
_CODECS: tuple[Any, ...] = (None, "lz4", "zstd")
_ENVS = 8


def emit(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def rss_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def used_memory(client: RedisClient) -> int:
    return int(client.redis.info("memory")["used_memory"])


def play(game: str, transitions: int, senders: list[ExpSender], seed: int = 0) -> None:
    """Play at random with the preset's wrappers; every sender gets the same steps."""
    config = load_config("atari-dqn", overrides=[f"env.id={game}", f"seed={seed}"])
    rng, sent = np.random.default_rng(seed), 0
    with build_pool(config, index=0) as pool:
        while sent < transitions:
            rows = pool.recv()
            acting = len(rows.kind) - rows.num_last
            actions = rng.integers(0, pool.action_space.n, acting)
            for sender in senders:
                sender.send_batch(rows, Action(actions, {}, 1))
            pool.send(actions, rows.env_ids[rows.num_last :])
            sent += acting


def make_sender(client: RedisClient, compression: Any) -> ExpSender:
    """Build a sender with the settings of the preset `atari-dqn`."""
    return ExpSender(
        client,
        chunk_steps=544,
        chunk_max_bytes=4 << 20,
        max_delay_s=3600,
        lookahead=2,
        frame_stack=4,
        compression=compression,
    )


def take_all(client: RedisClient, transitions: int, observations: Any) -> Replay:
    """Build a learner's replay of everything in Redis."""
    replay = UniformReplay(
        client,
        batch_size=32,
        capacity=transitions,
        start_size=1000,
        n_step=3,
        observations=observations,
        prefetch=1,
        is_owner=False,
    )
    while not replay.pointer_queue.has_caught_up.is_set():
        replay.pointer_queue.enqueue_step()
        while len(replay.pointer_queue):
            replay.step(0.0)
    return replay


def measure_bytes(game: str, transitions: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis(maxmemory_bytes=4 << 30)) for _ in _CODECS]
        clients = [RedisClient(server.address, run=f"memory-{uuid.uuid4().hex[:8]}") for server in servers]
        senders = [make_sender(client, codec) for client, codec in zip(clients, _CODECS, strict=True)]
        before = [used_memory(client) for client in clients]
        play(game, transitions, senders)
        for sender in senders:
            sender.close()
        redis_bytes = [used_memory(client) - empty for client, empty in zip(clients, before, strict=True)]
        stored = len(take_all(clients[0], transitions, "remote"))

        def tell(what: str, number: int, aim: float) -> None:
            each = number / stored
            ratio = round(each / _FRAME_BYTES, 3)
            emit(
                name=f"memory {game}: {what}", value=round(each, 1), unit="bytes/transition", ratio=ratio, aim=aim,
                transitions=stored,
            )  # fmt: skip

        for codec, number in zip(_CODECS, redis_bytes, strict=True):
            tell(f"Redis, {codec or 'uncompressed'}", number, 1.15 if codec is None else 0.25)
        # The smaller one comes first, so that the next one cannot reuse its memory.
        for observations, aim in (("compressed", 0.25), ("mirrored", 1.15)):
            gc.collect()
            resident = rss_bytes()
            replay = take_all(clients[0], transitions, observations)
            gc.collect()
            tell(f"learner, {observations}, RSS growth", rss_bytes() - resident, aim)
            tell(f"learner, {observations}, allocated", int(replay.metrics()["replay/mirrored_bytes"]), aim)


def insert_forever(address: str, run: str, steps_per_s: float, stop: Event) -> None:
    """Send episodes of random lengths, of frames that change, at a steady rate."""
    client = RedisClient(address, run=run)
    sender = make_sender(client, None)
    sender_rng, sent, started_s = np.random.default_rng(0), 0, time.monotonic()
    template, action = make_batch((4, 84, 84), np.uint8, _ENVS)
    is_first = np.ones(_ENVS, np.bool_)
    obs = template.obs.copy()
    while not stop.is_set():
        frame = np.roll(obs[:, -1], 1, axis=1)
        obs[:, :-1], obs[:, -1] = obs[:, 1:].copy(), frame
        obs[is_first] = obs[is_first, -1:]
        ends = ~is_first & (sender_rng.random(_ENVS) < 0.005)
        last, acting = np.flatnonzero(ends), np.flatnonzero(~ends)
        rows = np.concatenate([last, acting])
        kind = np.where(is_first, StepKind.FIRST, StepKind.MID)[rows].astype(np.uint8)
        kind[: len(last)] = StepKind.LAST
        reward = np.where(is_first, 0.0, 1.0)[rows].astype(np.float32)
        terminated, on = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        terminated[: len(last)] = True
        batch = template._replace(
            kind=kind,
            env_ids=rows,
            obs=obs[rows],
            reward=reward,
            terminated=terminated,
            truncated=np.zeros(len(rows), np.bool_),
            explore=on,
            record=on,
            num_last=len(last),
        )
        sender.send_batch(batch, action._replace(actions=action.actions[: len(acting)]))
        is_first = ends
        sent += len(acting)
        stop.wait(max(0.0, started_s + sent / steps_per_s - time.monotonic()))
    sender.close()


def slope_percent(minutes: NDArray[Any], values: NDArray[Any]) -> float:
    """Return the growth an hour after the first quarter, in percent of the mean."""
    late = slice(len(minutes) // 4, None)
    per_minute = np.polyfit(minutes[late], values[late], 1)[0]
    return round(float(60 * per_minute / values[late].mean() * 100), 3)


def churn(minutes: float, capacity: int, steps_per_s: float) -> None:
    spawn = multiprocessing.get_context("spawn")
    stop, run = spawn.Event(), f"churn-{uuid.uuid4().hex[:8]}"
    with EmbeddedRedis(maxmemory_bytes=max(256 << 20, 3 * capacity * _FRAME_BYTES)) as server:
        client = RedisClient(server.address, run=run)
        replay = UniformReplay(
            client, batch_size=32, capacity=capacity, start_size=capacity // 2, n_step=3, observations="mirrored"
        )
        process = spawn.Process(target=insert_forever, args=(server.address, run, steps_per_s, stop), daemon=True)
        process.start()
        replay.start_threads()
        batches, seen = replay.batch_iterator(), []
        while not replay.metrics()["replay/evicted_chunks_total"]:  # the clock starts at capacity
            next(batches)
            time.sleep(0.02)
        started_s = time.monotonic()
        while not seen or seen[-1][0] < minutes:
            for _ in range(int(10 / 0.02)):
                next(batches)
                time.sleep(0.02)
            elapsed_s = time.monotonic() - started_s
            seen.append(
                (elapsed_s / 60, used_memory(client), rss_bytes(), replay.metrics()["replay/inserted_steps_total"])
            )
            if len(seen) % 6 == 1:
                minute, redis_bytes, resident, steps = seen[-1]
                emit(
                    name="memory churn, sample",
                    minute=round(minute, 2),
                    redis_mib=round(redis_bytes / 2**20, 2),
                    learner_rss_mib=round(resident / 2**20, 2),
                    inserted_steps=int(steps),
                    transitions=len(replay),
                )
        table = np.array(seen)
        turnover = round(float((table[-1, 3] - table[0, 3]) / capacity), 1)
        for what, column in (("Redis used_memory", 1), ("learner RSS", 2)):
            values = table[:, column] / 2**20
            emit(
                name=f"memory churn: {what}",
                value=round(float(values[-1]), 1),
                unit="MiB",
                range=[round(float(values[len(values) // 4 :].min()), 1), round(float(values.max()), 1)],
                growth_percent_an_hour=slope_percent(table[:, 0], table[:, column]),
                minutes=minutes,
                capacity=capacity,
                turnovers=turnover,
            )
        stop.set()
        process.join(30)
        replay.stop()
        replay.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=("bytes", "churn"), default=["bytes", "churn"])
    parser.add_argument("--games", nargs="+", default=["ALE/Pong-v5", "ALE/Breakout-v5"])
    parser.add_argument("--transitions", type=int, default=20_000, help="transitions of the game")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes of churn")
    parser.add_argument("--capacity", type=int, default=10_000, help="transitions, in churn")
    parser.add_argument("--rate", type=float, default=800.0, help="env steps/s inserted, in churn")
    args = parser.parse_args()
    if "bytes" in args.sections:
        for game in args.games:
            process = multiprocessing.get_context("spawn").Process(target=measure_bytes, args=(game, args.transitions))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"measuring {game} failed")
    if "churn" in args.sections:
        churn(args.minutes, args.capacity, args.rate)


if __name__ == "__main__":
    with alone():
        main()
