"""Ages: by each server's clock, asked for now and then."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.replay import state
from surreal.replay.state import Ages


class Server:
    """A server whose clock is some seconds ahead of 1970 plus ours; it may be away."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s, self.is_away, self.asked = ahead_s, False, 0

    def server_time_s(self) -> float:
        self.asked += 1
        return time.monotonic() + self.ahead_s

    def attempt(self, operation: Any, *, what: str) -> Any:
        return operation()

    def stream(self, shard: int) -> Any:
        return SimpleNamespace(shard=shard, client=self, server_time_s=self.server_time_s)

    def chunk(self, shard: int, age_s: float) -> Any:
        came_ms = int(1000 * (time.monotonic() + self.ahead_s - age_s))
        return SimpleNamespace(shard=shard, entry_id=b"%d-7" % came_ms)


def test_age_counts_by_the_clock_of_the_chunks_server() -> None:
    servers = [Server(1e9), Server(2e9)]
    found = Ages(
        [server.stream(i) for i, server in enumerate(servers)],
        1000.0,
    )
    for shard, server in enumerate(servers):
        assert [found.is_old(server.chunk(shard, age_s)) for age_s in (0, 900, 1100)] == [False, False, True]
        assert server.asked == 1


def test_a_server_that_is_away_makes_nothing_old_and_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(1e9)
    found = Ages([server.stream(0)], 1000.0)
    server.is_away = True
    assert not found.is_old(server.chunk(0, 5000))
    server.is_away = False
    assert found.is_old(server.chunk(0, 5000))
    monkeypatch.setattr(state, "_ASK_INTERVAL_S", 0.0)
    server.ahead_s -= 3000.0  # its clock was set
    assert not found.is_old(server.chunk(0, 900))
    assert server.asked == 2


def test_a_bound_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="max_age_s is 0"):
        Ages([], 0.0)
