"""The cases of `benchmarks.replay`, and Surreal's side: a stream in Redis with several replays."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import CACHE
from benchmarks.transport import make_batch
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import UniformReplay
from surreal.run.build.environments import build_pool

ENVS = 16
NETWORKED_MAX = 100_000  #: transitions of a networked peer at most
_FILL_BYTES = 64 << 20  # size of a timed run that is filled


class Case(NamedTuple):
    """The shape of stored transitions and of sampled batches."""

    shape: tuple[int, ...]  #: shape of a row
    dtype: type
    stack: int
    batch_size: int
    stored: int = 0

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.shape if self.stack == 1 else (self.stack, *self.shape)

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def drawn_bytes(self) -> int:
        """Observation bytes of a batch in the learner."""
        return 2 * self.stack * self.row_bytes * self.batch_size

    @property
    def redis_bytes(self) -> int:
        """Enough memory for Surreal's data and for a peer's copy of it."""
        peer = 2 * self.stack * self.row_bytes * min(self.stored, NETWORKED_MAX)
        return max(512 << 20, 3 * self.stored * (self.row_bytes + 256) + 2 * peer)


CASES = {
    "4 float32, batch 256": Case((4,), np.float32, 1, 256),
    "64 float32, batch 256": Case((64,), np.float32, 1, 256),
    "84x84x4 uint8, batch 32": Case((84, 84), np.uint8, 4, 32),
    "84x84x4 uint8, batch 256": Case((84, 84), np.uint8, 4, 256),
}


class Filled:
    """The experience of a case in Redis, with replays and their threads: one mirrors it, the others follow."""

    def __init__(self, address: str, case: Case) -> None:
        self.address, self.case = address, case
        self.client = RedisClient(address, run=f"replay-{uuid.uuid4().hex[:8]}")
        sizes: dict[str, Any] = {"batch_size": case.batch_size, "capacity": 2 * case.stored, "start_size": case.stored}
        self._replays = [
            UniformReplay(self.client, observations="mirrored", **sizes),
            UniformReplay(self.client, observations="remote", is_owner=False, **sizes),
        ]
        if case.stack > 1:
            self._replays.append(UniformReplay(self.client, observations="compressed", is_owner=False, **sizes))
        self._replays[0].start_threads()
        if case.stack > 1:
            frames = np.load(game_frames())
            send(self.client, case, case.stored + 64 * ENVS, ENVS, frames, chunk_steps=544, chunk_max_bytes=4 << 20)
        else:
            send(self.client, case, case.stored + 64 * ENVS, ENVS)
        for replay in self._replays[1:]:
            replay.start_threads()
        self._batches = [replay.batch_iterator() for replay in self._replays]
        for batches in self._batches:
            for _ in range(20):
                next(batches)

    def mirrored(self, seconds: float) -> float:
        return self._rate(0, seconds)

    def remote(self, seconds: float) -> float:
        return self._rate(1, seconds)

    def compressed(self, seconds: float) -> float:
        return self._rate(2, seconds)

    def _rate(self, which: int, seconds: float) -> float:
        """Return transitions a second."""
        batches = self._batches[which]
        for _ in range(6):  # batches prefetched while another replay was measured
            next(batches)
        return timed(lambda: next(batches), self.case.batch_size, seconds)

    def fill(self, rows: int, seconds: float, chunk_steps: int = 32_768) -> float:
        """Return the transitions a second that one sender stores and Redis acknowledges, with `rows` a call."""
        case, client = self.case, RedisClient(self.address, run=f"fill-{uuid.uuid4().hex[:8]}")
        count = _FILL_BYTES // (case.row_bytes + 64)
        sent, elapsed_s = 0, 0.0
        while elapsed_s < seconds:
            started_s = time.perf_counter()
            send(client, case, count, rows, chunk_steps=chunk_steps, chunk_max_bytes=4 << 20)
            elapsed_s += time.perf_counter() - started_s
            sent += count
            client.delete_run()
        return sent / elapsed_s

    def blocks(self) -> list[tuple[bytes, int]]:
        """Return the key and length of every block."""
        keys = self.client.shard_keys()
        ids = [fields[b"id"].decode() for _, fields in self.client.redis.xrange(keys.stream)]
        return [(keys.block(i).encode(), self.client.redis.strlen(keys.block(i))) for i in ids]

    def close(self) -> None:
        for replay in self._replays:
            replay.stop()
            replay.join()
        self.client.delete_run()


def send(
    client: RedisClient,
    case: Case,
    transitions: int,
    envs: int,
    frames: NDArray[np.uint8] | None = None,
    **chunks: int,
) -> None:
    """Send `count` transitions of noise, or of successive `frames` [N, ...]."""
    batch, action = make_batch(case.obs_shape, case.dtype, envs)
    sender = ExpSender(client, frame_stack=case.stack, is_limited=False, max_delay_s=3600, **chunks)
    for number in range(0, transitions, envs):
        if frames is not None:
            batch.obs[:, -1] = frames[(number + np.arange(envs)) % len(frames)]
        sender.send_batch(batch, action)
    sender.close()


def game_frames(count: int = 2000) -> Path:
    """Make a .npy file of successive frames [count, 84, 84] of Pong: random play with the wrappers of `atari-dqn`."""
    path = CACHE / "pong.npy"
    if path.exists():
        return path
    rng, frames = np.random.default_rng(0), []
    with build_pool(load_config("atari-dqn", overrides=["env.num_envs=1"]), index=0) as pool:
        while len(frames) < count:
            rows = pool.recv()
            frames += [np.asarray(stack)[-1].copy() for stack in rows.obs]
            acting = len(rows.kind) - rows.num_last
            pool.send(rng.integers(0, pool.action_space.n, acting), rows.env_ids[rows.num_last :])
    path.parent.mkdir(exist_ok=True)
    np.save(path, np.stack(frames[:count]))
    return path


def timed(batch: Callable[[], object], batch_size: int, seconds: float) -> float:
    """Return the transitions a second of a call that makes one batch."""
    number, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        batch()
        number += 1
    return number * batch_size / (time.perf_counter() - started_s)
