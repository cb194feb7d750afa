"""Fixtures of the data path: clients, senders and replays of one run, closed at the end of the test."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `naive_replay` and others, shared by the tests of this folder

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay import UniformReplay


class Run:
    """One run on one server: makes its parts, and takes them down."""

    def __init__(self, address: str, run_id: str) -> None:
        self.address, self.run_id = address, run_id
        self.senders: list[ExpSender] = []
        self.replays: list[UniformReplay] = []
        self.clients: list[RedisClient] = []
        self.client = self.make_client()

    def make_client(self, **options: Any) -> RedisClient:
        self.clients.append(RedisClient(self.address, run=self.run_id, **options))
        return self.clients[-1]

    def sender(self, **options: Any) -> ExpSender:
        options = {"chunk_steps": 16, "max_delay_s": 60.0, "wait_timeout_s": 60.0} | options
        self.senders.append(ExpSender(options.pop("client", self.client), **options))
        return self.senders[-1]

    def replay(self, **options: Any) -> UniformReplay:
        defaults = {"batch_size": 8, "capacity": 100_000, "start_size": 1, "gamma": 0.5, "prefetch": 1, "seed": 1}
        options = defaults | options
        self.replays.append(UniformReplay(options.pop("client", self.client), **options))
        return self.replays[-1]

    def close(self) -> None:
        for sender in self.senders:
            sender.outbox.drop_all()
        for replay in self.replays:
            replay.stop()
            replay.join()
        for client in self.clients:
            client.close()


@pytest.fixture
def make_run(run_id: str) -> Iterator[Callable[[str], Run]]:
    """Make the test's run on a server of its own choice."""
    runs: list[Run] = []

    def make(address: str) -> Run:
        runs.append(Run(address, run_id))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def run(make_run: Callable[[str], Run], redis_server: Any) -> Iterator[Run]:
    """The test's run on the session's server; its keys are deleted at the end."""
    made = make_run(redis_server.address)
    yield made
    made.client.delete_run()


@pytest.fixture(scope="session")
def new_run(redis_server: Any) -> Callable[[], AbstractContextManager[Run]]:
    """Make a run with an id of its own that is gone at the end of its block, for tests with many examples."""

    @contextmanager
    def make() -> Iterator[Run]:
        made = Run(redis_server.address, f"test-{uuid.uuid4().hex[:12]}")
        try:
            yield made
            made.client.delete_run()
        finally:
            made.close()

    return make


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_shards(run_id: str, stack: ExitStack) -> Callable[..., ReplayShards]:
    """Shards of the test's run on these servers; each call has clients of its own, as each process has."""

    def make(*addresses: str, num_shards: int | None = None, timeout_s: float = 5.0) -> ReplayShards:
        clients = [RedisClient(address, run=run_id, timeout_s=timeout_s) for address in addresses]
        shards = ReplayShards(clients, num_shards)
        stack.callback(shards.close)
        return shards

    return make
