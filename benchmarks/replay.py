"""How fast batches come out of a replay, against the floor of the same machine.

    python -m benchmarks.replay [--sections mirrored remote] [--rounds N] [--seconds S] [--stored N]

* mirrored: batches at the output of `batch_iterator()` in steady state, against `numpy.take` of as many rows at random
  places of one array (obs and next obs).
* remote: the same with observations that stay in Redis, against a raw socket that sends prepared GETRANGE commands for
  as many rows at random places of the same blocks, pipelined, and receives the replies without looking at them. Twice:
  one GETRANGE a row (obs and next obs, each frame of a stack once), and one a range of adjacent rows, as ours asks.

Experience came through Redis before; observations are vectors, or stacks of four frames that are stored once each.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.baselines.raw_client import RawClient
from benchmarks.harness import alternate, report
from benchmarks.transport import make_batch
from surreal.distributed.client import RedisClient
from surreal.distributed.sender import ExpSender
from surreal.distributed.server import EmbeddedRedis
from surreal.replay import UniformReplay

_ENVS = 16
_PREPARED = 16  # requests of the raw client, made before they are timed


class Case(NamedTuple):
    """What is stored and drawn."""

    shape: tuple[int, ...]  #: of a row
    dtype: type
    stack: int
    batch_size: int
    stored: int

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def drawn_bytes(self) -> int:
        """Observation bytes of a batch as the learner gets it."""
        return 2 * self.stack * self.row_bytes * self.batch_size


CASES = {
    "4 float32, batch 256": Case((4,), np.float32, 1, 256, 100_000),
    "64 float32, batch 256": Case((64,), np.float32, 1, 256, 100_000),
    "84x84x4 uint8, batch 32": Case((84, 84), np.uint8, 4, 32, 10_000),
    "84x84x4 uint8, batch 256": Case((84, 84), np.uint8, 4, 256, 10_000),
}


class Filled:
    """A replay with a case's experience in it, served by its threads."""

    def __init__(self, address: str, case: Case, observations: Any) -> None:
        self.client = RedisClient(address, run=f"replay-{uuid.uuid4().hex[:8]}")
        batch, action = make_batch(case.shape if case.stack == 1 else (case.stack, *case.shape), case.dtype, _ENVS)
        sender = ExpSender(self.client, frame_stack=case.stack, is_limited=False)
        self.replay = UniformReplay(
            self.client,
            batch_size=case.batch_size,
            capacity=2 * case.stored,
            start_size=case.stored,
            observations=observations,
        )
        self.replay.start_threads()
        for _ in range(case.stored // _ENVS + 64):
            sender.send_batch(batch, action)
        sender.close()
        self.batches = self.replay.batch_iterator()
        for _ in range(20):
            next(self.batches)

    def rate(self, seconds: float) -> float:
        """Transitions a second."""
        number, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            next(self.batches)
            number += 1
        return number * self.replay.batch_size / (time.perf_counter() - started_s)

    def blocks(self) -> list[tuple[bytes, int]]:
        """Key and length of every block."""
        keys = self.client.shard_keys()
        ids = [fields[b"id"].decode() for _, fields in self.client.redis.xrange(keys.stream)]
        return [(keys.block(i).encode(), self.client.redis.strlen(keys.block(i))) for i in ids]

    def close(self) -> None:
        self.replay.stop()
        self.replay.join()
        self.client.delete_run()


def timed(batch: Callable[[], object], batch_size: int, seconds: float) -> float:
    """Transitions a second of a call that makes one batch."""
    number, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        batch()
        number += 1
    return number * batch_size / (time.perf_counter() - started_s)


def mirrored(address: str, name: str, case: Case, rounds: int, seconds: float) -> None:
    filled = Filled(address, case, "mirrored")
    rng = np.random.default_rng(0)
    rows: NDArray[Any] = np.zeros((case.stored, *case.shape), case.dtype)
    rows[:] = 1
    back = np.arange(case.stack - 1, -1, -1)

    def take() -> None:
        places = rng.integers(case.stack, case.stored - 1, case.batch_size)
        for first in (places, places + 1):
            rows.take(first[:, None] - back if case.stack > 1 else first, axis=0)

    mine, floor = alternate(lambda: filled.rate(seconds), lambda: timed(take, case.batch_size, seconds), rounds)
    more = {"MB/s": megabytes(mine, case), "stored": case.stored}
    report(f"mirrored against numpy.take, {name}", "transitions/s", mine, floor, aim=1 / 1.5, **more)
    filled.close()


class RawRanges:
    """Prepared pipelines of GETRANGE, sent and received without a look at what comes.

    Args:
        path: socket of the server.
        blocks: keys and lengths.
        case: how many rows; those of a transition are adjacent: each frame of the stack, and the next observation.
        is_merged: one command for all of them, or one for each.
    """

    def __init__(self, path: str, blocks: list[tuple[bytes, int]], case: Case, *, is_merged: bool) -> None:
        self._raw = RawClient(path)
        rng, size, adjacent = np.random.default_rng(0), case.row_bytes, case.stack + 1
        self._requests: list[bytes] = []
        for _ in range(_PREPARED):
            commands = []
            for place in rng.integers(len(blocks), size=case.batch_size).tolist():
                key, length = blocks[place]
                first = int(rng.integers(length // size - adjacent + 1))
                for row, count in [(first, adjacent)] if is_merged else [(first + i, 1) for i in range(adjacent)]:
                    span = b"%d" % (row * size), b"%d" % ((row + count) * size - 1)
                    commands.append(RawClient.pack(b"GETRANGE", key, *span))
            self._requests.append(b"".join(commands))
        count = adjacent if is_merged else 1
        reply = len(b"$%d\r\n" % (count * size)) + count * size + 2
        self._buffer = bytearray(reply * case.batch_size * adjacent // count)
        self._number = 0

    def batch(self) -> None:
        self._raw.sock.sendall(self._requests[self._number % _PREPARED])
        self._number += 1
        view = memoryview(self._buffer)
        while view:
            view = view[self._raw.sock.recv_into(view) :]


def remote(address: str, name: str, case: Case, rounds: int, seconds: float) -> None:
    filled = Filled(address, case, "remote")
    path, blocks = address.removeprefix("unix://"), filled.blocks()
    for is_merged in (False, True):
        raw = RawRanges(path, blocks, case, is_merged=is_merged)
        mine, bare = alternate(
            lambda: filled.rate(seconds), lambda r=raw: timed(r.batch, case.batch_size, seconds), rounds
        )
        kind = "ranges" if is_merged else "rows"
        more = {"MB/s": megabytes(mine, case), "stored": case.stored}
        report(f"remote against raw GETRANGE of {kind}, {name}", "transitions/s", mine, bare, aim=1 / 1.3, **more)
    filled.close()


def megabytes(rates: list[float], case: Case) -> float:
    """Observation bytes handed to the learner, MB/s."""
    return round(float(np.median(rates)) * case.drawn_bytes / case.batch_size / 1e6, 1)


SECTIONS = {"mirrored": mirrored, "remote": remote}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--stored", type=int, help="transitions stored, in place of each case's own number")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for section in args.sections:
        for name in args.cases:
            case = CASES[name] if args.stored is None else CASES[name]._replace(stored=args.stored)
            needed = int(1.5 * case.stored * (case.row_bytes + 256))
            with EmbeddedRedis(maxmemory_bytes=max(256 << 20, 2 * needed)) as server:
                SECTIONS[section](server.address, name, case, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
