"""Experience as agents send it, prepared once, and a bare connection that stores its bytes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.baselines.raw_client import RawClient
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Action, StepBatch
from surreal.distributed.experience.codec import Contract, EncodedChunk
from surreal.distributed.experience.row_log import RowLog

#: The experience that agents send: 4 floats a step, 8 environments.
CARTPOLE: dict[str, Any] = {"shape": (4,), "dtype": np.float32, "num_envs": 8, "chunk_steps": 256}


def prepare_chunk(
    shape: tuple[int, ...], dtype: type, *, num_envs: int, chunk_steps: int
) -> tuple[Contract, EncodedChunk]:
    """Encode a chunk as an agent sends it in mid-episode: 2 steps of lookahead, for 3-step returns."""
    rng = np.random.default_rng(0)
    contract = Contract(
        ObsSpec.from_obs(np.zeros(shape, dtype)), ArraySpec("action", (), np.dtype(np.int64)), lookahead=2
    )
    log = RowLog(contract, capacity=4 * chunk_steps)
    no, yes = np.zeros(num_envs, np.bool_), np.ones(num_envs, np.bool_)
    kind, slots, reward = np.ones(num_envs, np.uint8), np.arange(num_envs), np.ones(num_envs, np.float32)
    chunks: list[EncodedChunk] = []
    while len(chunks) < 2:  # the first has no rows carried over from an earlier chunk
        for _ in range(chunk_steps // num_envs):
            obs = rng.integers(0, 255, (num_envs, *shape)).astype(dtype)
            batch = StepBatch(kind, slots, obs, reward, no, no, yes, yes, 0, {}, np.zeros(0, np.int64))
            log.append_batch(batch, Action(np.zeros(num_envs, np.int64), {}, 1))
        chunks += log.cut(64 << 20)
    return contract, chunks[-1]


def store_bare(path: str, chunk: EncodedChunk, at_once: int, seconds: float) -> float:
    """Return the chunks/s of one connection that sends the same bytes in bare calls, `at_once` without an answer."""
    raw = RawClient(path)
    content = b"".join(chunk.pieces)
    burst = b"".join(raw.packed_store(number, chunk.head, content) for number in range(at_once))
    number, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        raw.sock.sendall(burst)
        left = at_once
        while left:
            replies = raw.sock.recv(4096)
            if b"-" in replies:
                raise RuntimeError(f"the script failed: {replies!r}")
            left -= replies.count(b"\n")
        number += at_once
    raw.sock.close()
    return number / (time.perf_counter() - started_s)
