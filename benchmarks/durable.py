"""DurableReplay against UniformReplay, a list of Redis, and TorchRL's storage in Redis, on rows of the same size.

    python -m benchmarks.durable [--rounds 5] [--rows 1024]

Rows are transitions of 4 float32 with action, reward and discount. One process puts, consumes or samples them over a
Unix socket of a Redis without an append-only file. Rounds alternate; above 1, DurableReplay is faster.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.alone import alone
from benchmarks.harness import alternate, report
from benchmarks.peers import TORCHRL, Peer, find_python, skip
from benchmarks.replay_cases import CASES, Filled, timed
from surreal import DurableReplay, RedisClient
from surreal.distributed import EmbeddedRedis
from surreal.distributed.durable.packing import make_columns, pack, unpack

_CASE = CASES["4 float32, batch 256"]._replace(stored=50_000)
_AIM = 0.7  #: of UniformReplay's rates


def make_rows(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs = {name: rng.random((count, 4), np.float32) for name in ("obs", "next_obs")}
    scalars = {name: rng.random(count, np.float32) for name in ("reward", "discount")}
    return {**obs, **scalars, "action": rng.integers(0, 2, count)}


class Stored:
    """A DurableReplay, and a list of Redis, with the same rows.

    Args:
        address: their Redis.
        count: rows of a call.
        seconds: length of a measurement.
    """

    def __init__(self, address: str, count: int, seconds: float) -> None:
        self._address, self._rows, self._count, self._seconds = address, make_rows(count), count, seconds
        self._client = RedisClient(address, run="list")
        self._kept = self._open(capacity=_CASE.stored, when_full="evict")
        for _ in range(_CASE.stored // count):
            self._kept.put(self._rows)

    def _open(self, **options: Any) -> DurableReplay:
        return DurableReplay(f"durable-{uuid.uuid4().hex[:8]}", address=self._address, **options)

    def put(self) -> float:
        with self._open(capacity=_CASE.stored, when_full="evict") as replay:
            rate = timed(lambda: replay.put(self._rows), self._count, self._seconds)
            replay._server.client.delete_run()
        return rate

    def put_and_consume(self) -> float:
        with self._open() as replay:

            def act() -> None:
                replay.put(self._rows)
                for _ in range(self._count // 256):
                    batch = replay.consume(256)
                    assert batch is not None
                    batch.commit()

            rate = timed(act, self._count // 256 * 256, self._seconds)
            replay._server.client.delete_run()
        return rate

    def list_push(self) -> float:
        redis = self._client.redis

        def act() -> None:
            redis.rpush("list", pack(make_columns(self._rows)))
            redis.ltrim("list", -_CASE.stored // self._count, -1)

        return timed(act, self._count, self._seconds)

    def list_push_and_pop(self) -> float:
        redis = self._client.redis
        redis.delete("list")

        def act() -> None:
            redis.rpush("list", pack(make_columns(self._rows)))
            found: Any = redis.lpop("list")
            columns = unpack(found)
            for begin in range(0, self._count, 256):
                for column in columns.values():
                    column[begin : begin + 256].copy()

        return timed(act, self._count, self._seconds)

    def sample(self) -> float:
        return timed(lambda: self._kept.sample(256), 256, self._seconds)


def main() -> None:
    """Measure all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1024, help="rows of a call")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement")
    asked = parser.parse_args()
    with EmbeddedRedis(maxmemory_bytes=2 << 30) as server:
        stored, filled = Stored(server.address, asked.rows, asked.seconds), Filled(server.address, _CASE)

        def compare(name: str, ours: Callable[[], float], theirs: Callable[[], float], aim: float | None) -> None:
            report(
                f"durable, {asked.rows} rows a call: {name}", "rows/s", *alternate(ours, theirs, asked.rounds), aim=aim
            )

        compare("put over ExpSender", stored.put, lambda: filled.fill(64, asked.seconds), _AIM)
        compare(
            "put over ExpSender with as many rows a chunk",
            stored.put,
            lambda: filled.fill(64, asked.seconds, asked.rows),
            _AIM,
        )
        compare("sample over UniformReplay", stored.sample, lambda: filled.mirrored(asked.seconds), _AIM)
        compare("put over a Redis list", stored.put, stored.list_push, None)
        compare("put and consume over a Redis list", stored.put_and_consume, stored.list_push_and_pop, None)
        filled.close()
        python = find_python(TORCHRL)
        if isinstance(python, str):
            skip("durable over TorchRL's storage in Redis", python)
            return
        peer = Peer("torchrl_peer.py", python)
        socket = server.address.removeprefix("unix://")
        shape = {"shape": list(_CASE.shape), "dtype": "float32", "batch_size": 256, "socket": socket}
        peer.call("fill", storage="store", size=_CASE.stored, **shape)
        extend = {"rows": asked.rows, "seconds": asked.seconds}
        compare("put over TorchRL in Redis", stored.put, lambda: float(peer.call("extend", **extend)), None)
        draw = {"prefetch": 0, "seconds": asked.seconds}
        compare("sample over TorchRL in Redis", stored.sample, lambda: float(peer.call("sample", **draw)), None)
        peer.call("close")
        peer.close()


if __name__ == "__main__":
    with alone():
        main()
