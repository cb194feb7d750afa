"""The benchmark of many agents at one Redis counts right; how fast they are is its own business."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.chunks import CARTPOLE, prepare_chunk, store_bare
from benchmarks.fleet import Fleet, Round, fairness
from surreal.distributed.connection.client import RedisClient


def test_what_a_small_fleet_was_told_is_stored_is_stored_once(redis_server: Any, run_id: str) -> None:
    contract, chunk = prepare_chunk(**CARTPOLE)
    assert chunk.own_steps == CARTPOLE["chunk_steps"]
    fleet = Fleet(redis_server.address, run_id, 20, (contract, chunk))
    with RedisClient(redis_server.address, run=run_id) as client:
        try:
            found = fleet.send(0.2)
            meta = client.redis.hgetall(client.shard_keys().meta)
            assert (len(found.chunks), found.dropped, found.duplicates) == (20, 0, 0)
            assert min(found.chunks) >= 1
            assert int(meta[b"chunks"]) == sum(found.chunks)
            assert int(meta[b"steps"]) == sum(found.chunks) * chunk.own_steps
        finally:
            fleet.close()
            client.delete_run()


def test_bare_calls_are_answered_one_by_one_and_at_once(redis_server: Any) -> None:
    _, chunk = prepare_chunk(**CARTPOLE)
    path = redis_server.address.removeprefix("unix://")
    try:
        assert store_bare(path, chunk, 1, 0.05) > 0
        assert store_bare(path, chunk, 16, 0.05) > 0
    finally:
        with redis_server.client() as client:
            client.delete("raw:stream", *(f"raw:block:{number}" for number in range(64)))


def test_fairness_is_the_slowest_share_of_all_rounds() -> None:
    assert fairness([Round([10, 20], 0, 0), Round([20, 10], 0, 0)]) == pytest.approx(1.0)
    assert fairness([Round([0, 20], 0, 0), Round([10, 10], 0, 0)]) == pytest.approx(0.5)
    assert np.isfinite(fairness([Round([1], 0, 0)]))
