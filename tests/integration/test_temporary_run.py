"""A run for the time of a `with`."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest

from surreal import ExpSender, UniformReplay, temporary_run
from surreal.base.errors import ConfigError


def test_it_has_a_redis_of_its_own_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    with temporary_run() as first, temporary_run() as second:
        assert first.run != second.run
        servers = [int(client.redis.info("server")["process_id"]) for client in (first, second)]
        assert len(set(servers)) == 2
    assert not any(map(psutil.pid_exists, servers))


def test_in_a_redis_that_is_there_its_keys_alone_are_removed(
    monkeypatch: pytest.MonkeyPatch, redis_server: Any, run_id: str
) -> None:
    monkeypatch.setenv("SURREAL_REDIS", redis_server.address)
    with redis_server.client() as others:
        others.set(f"kept:{run_id}", 1)
        with temporary_run(run_id) as client:
            assert client.run.startswith(run_id)
            with UniformReplay(client, batch_size=4, start_size=8) as replay, ExpSender(client) as sender:
                obs = np.zeros(2, np.float32)
                for _ in range(10):
                    new_obs = obs + 1
                    sender.send([obs, new_obs], 1, 0.5, False)
                    obs = new_obs
                sender.flush()
                _, batch = next(replay.batch_iterator())
            assert batch.reward.tolist() == [0.5] * 4
            assert list(client.scan(f"*{client.run}*"))
        assert [key for key in others.keys("*") if run_id.encode() in key] == [f"kept:{run_id}".encode()]
        others.delete(f"kept:{run_id}")


def test_the_replay_ends_its_threads_also_after_an_error(monkeypatch: pytest.MonkeyPatch, redis_server: Any) -> None:
    monkeypatch.setenv("SURREAL_REDIS", redis_server.address)
    with temporary_run() as client:
        with pytest.raises(ZeroDivisionError), UniformReplay(client) as replay:
            _ = 1 / 0
        assert replay.join(timeout_s=0.0)


def test_what_is_no_address_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURREAL_REDIS", "http://somewhere")
    with pytest.raises(ConfigError, match=r"somewhere.*\$SURREAL_REDIS"), temporary_run():
        pass
