"""Methods that are called by name through Redis: once, typed, in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surreal.base.errors import CallError, StoppedError
from surreal.distributed import CallServer, RedisClient, RemoteServer, remote
from surreal.distributed import calls as caller_module
from tests.servers import RedisProcess


class Base:
    """What can be called, and what cannot."""

    def __init__(self) -> None:
        self.total = 0.0

    @remote
    def add(self, reward: float, *, times: int = 1) -> float:
        self.total += reward * times
        return self.total

    @remote
    def mean(self, values: np.ndarray) -> float | None:
        return float(values.mean()) if values.size else None

    @remote
    def fail(self) -> None:
        raise RuntimeError("no idea")

    def secret(self) -> str:
        return "not to be called"


class Target(Base):
    """A subclass, which overrides a method without marking it again."""

    def add(self, reward: float, *, times: int = 1) -> float:
        return super().add(reward, times=times)


@pytest.fixture
def client(redis_server: RedisProcess, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id) as client:
        yield client
        client.delete_run()


@pytest.fixture
def serving(client: RedisClient) -> Iterator[Callable[[], Target]]:
    """Starts a thread that answers, as a learner does between its updates."""
    over, threads = threading.Event(), list[threading.Thread]()

    def start() -> Target:
        target = Target()
        server = CallServer(client, target)

        def serve() -> None:
            while not over.is_set():
                server.serve()
                over.wait(0.002)

        threads.append(threading.Thread(target=serve))
        threads[0].start()
        return target

    yield start
    over.set()
    for thread in threads:
        thread.join()


def test_methods_are_called_by_name(client: RedisClient, serving: Callable[[], Target]) -> None:
    target, server = serving(), RemoteServer(client)
    assert server.add(1.5) == 1.5
    assert server.add(2, times=2) == 5.5
    assert server.call("mean", np.array([1.0, 2.0])) == 1.5
    assert server.mean(np.zeros(0)) is None
    assert target.total == 5.5


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("secret", (), "no remote method 'secret'; there are: add, fail, mean"),
        ("__init__", (), "no remote method '__init__'"),
        ("add", ("1",), "reward is a str; it must be float"),
        ("add", (True,), "reward is a bool"),
        ("add", (), "missing a required argument: 'reward'"),
        ("mean", ([1.0],), "values is a list; it must be ndarray"),
        ("fail", (), "fail: RuntimeError: no idea"),
    ],
)
def test_what_is_wrong_is_said_to_the_caller(
    client: RedisClient, serving: Callable[[], Target], name: str, arguments: tuple[Any, ...], problem: str
) -> None:
    target = serving()
    with pytest.raises(CallError) as caught:
        RemoteServer(client).call(name, *arguments)
    assert problem in str(caught.value)
    assert target.total == 0.0


def test_a_call_whose_caller_gave_up_is_never_executed(client: RedisClient) -> None:
    target = Target()
    with pytest.raises(CallError, match="not answered within"):
        RemoteServer(client, timeout_s=0.05).add(1.0)
    ((entry, _),) = client.redis.xrange(client.policy_keys().calls)
    # By the server's clock, a request is late a moment after its caller gave up: it had to travel.
    while client.server_time_s() * 1e3 <= int(entry.split(b"-")[0]) + 50:
        pass
    server = CallServer(client, target)
    assert server.serve() == 1
    assert server.metrics() == {"calls/answered_total": 0.0, "calls/failed_total": 0.0, "calls/expired_total": 1.0}
    assert target.total == 0.0


def test_a_request_that_is_repeated_is_executed_once(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the first try to ask was lost, so the caller asks again."""
    run_script, target = client.run_script, Target()

    def run_twice(*arguments: Any) -> Any:
        run_script(*arguments)
        return run_script(*arguments)

    monkeypatch.setattr(client, "run_script", run_twice)
    with pytest.raises(CallError, match="not answered"):
        RemoteServer(client, timeout_s=0.05).add(1.0)
    assert client.redis.xlen(client.policy_keys().calls) == 1
    assert CallServer(client, target).serve() == 1


def test_a_server_that_dies_in_a_call_does_not_execute_it_again(client: RedisClient) -> None:
    class Dying(Base):
        @remote
        def end(self) -> None:
            raise KeyboardInterrupt

    def ask() -> None:
        with pytest.raises(CallError, match="not answered"):
            RemoteServer(client, timeout_s=1.0).end()

    asking = threading.Thread(target=ask)
    asking.start()
    server, deadline_s = CallServer(client, Dying()), time.monotonic() + 60.0
    with pytest.raises(KeyboardInterrupt):
        while time.monotonic() < deadline_s:
            server.serve()
    assert CallServer(client, Dying()).serve() == 0
    asking.join()


def test_requests_that_wait_are_bounded(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_module, "MAX_WAITING", 2)
    server = RemoteServer(client, timeout_s=0.01)
    for problem in ("not answered", "not answered", "2 requests wait"):
        with pytest.raises(CallError, match=problem):
            server.add(1.0)


def test_stopping_ends_the_wait(client: RedisClient) -> None:
    stop = threading.Event()
    server = RemoteServer(client, timeout_s=600.0, stop=stop)
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(StoppedError):
        server.add(1.0)


def test_garbage_is_counted_and_the_next_call_is_answered(client: RedisClient) -> None:
    calls = client.policy_keys().calls
    for fields in ({"id": "x", "request": b"garbage", "timeout_ms": "1000"}, {"id": b"\xff"}, {"timeout_ms": "many"}):
        client.redis.xadd(calls, fields)  # type: ignore[arg-type]
    target = Target()
    server = CallServer(client, target)
    assert server.serve() == 3
    assert server.metrics()["calls/failed_total"] == 3.0
    assert client.redis.xlen(calls) == 0


def test_the_last_moment_of_a_wait_is_not_endless(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def execute(command: str, key: str, wait_s: str) -> None:
        waits.append(float(wait_s))

    monkeypatch.setattr(client, "execute", execute)
    now_s = iter([0.0, 0.9997, 1.0])  # at which BLPOP would be given 0.000
    monkeypatch.setattr(caller_module, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    with pytest.raises(CallError, match="was not answered within 1 s"):
        RemoteServer(client)._wait("add", "1", 1.0, 1.0)
    assert waits == [0.5, 0.001]
