"""`TorchBroadcaster` and `TorchListener` through a real Redis."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import redis
import torch
from redis.exceptions import OutOfMemoryError
from torch import nn

from surreal.agent import Agent
from surreal.base.errors import (
    CodecError,
    ContractError,
    DivergedError,
    LeaseError,
    RedisUnavailableError,
    StoppedError,
    ThreadFailedError,
)
from surreal.base.pytorch import Module
from surreal.config import load_config
from surreal.distributed import RedisClient, TorchBroadcaster, TorchListener
from surreal.distributed.connection.direct import PART_BYTES, DirectConnection, Memory
from surreal.distributed.connection.holders import make_token
from surreal.distributed.connection.wire import ScriptChannel
from surreal.distributed.parameters.parts import upload_parts
from surreal.distributed.parameters.published import encode_parameters, fetch_parts, part_names
from surreal.run.build.acting import build_acting_model
from surreal.run.build.environments import build_pool, build_spaces
from surreal.run.build.rlx_server import ServerOptions, build_rlx_pool
from surreal.run.process.progress import write_progress
from surreal.run.session.acting import ActingSession
from surreal.run.session.publishing import Publishing

PARTS = [64 << 20, 100]  # bytes of a part: all in one value, and many parts


class Net(Module):
    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, hidden)
        self.fc2 = nn.Linear(hidden, 2)

    def fill(self, value: float) -> Net:
        with self.lock, torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(value)
        return self

    def holds(self, value: float) -> bool:
        with self.lock:
            return all(bool((parameter == value).all()) for parameter in self.parameters())


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


@pytest.fixture
def listener(client: RedisClient) -> Iterator[TorchListener]:
    listener = TorchListener(client, Net().fill(-1), poll_interval_s=60)
    yield listener
    listener.close()


def keys_of(client: RedisClient) -> set[str]:
    """What comes after the policy in each key's name: "params", "part:3:0", ..."""
    names = [key.decode().rpartition("}:")[2] for key in client.redis.scan_iter(match=f"*{client.run}*")]
    return {name.removeprefix("policy:default:") for name in names}


@pytest.mark.parametrize("part_bytes", PARTS)
def test_listener_gets_the_parameters_version_and_message(
    start_redis: Callable[..., Any], redis_binary: str, part_bytes: int
) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as client:
        model, mirror = Net().fill(1), Net()
        broadcaster = TorchBroadcaster(client, model, part_bytes=part_bytes)
        listener = TorchListener(client, mirror)
        assert not listener.update_once()
        assert broadcaster.broadcast(model, "first") == 1
        assert listener.update_once()
        assert not listener.update_once()
        assert mirror.holds(1)
        assert (listener.version, mirror.version, model.version, listener.message) == (1, 1, 1, "first")
        assert broadcaster.broadcast(model.fill(2)) == 2
        assert listener.update_once()
        assert mirror.holds(2)
        assert listener.metrics()["listener/updates_total"] == 2
        assert broadcaster.metrics()["broadcast/version"] == 2


def test_parameters_are_exchanged_by_reference_for_agents_that_keep_time(client: RedisClient) -> None:
    """What acts is not written to, so that no action waits for a copy."""
    mirror = Net()
    listener = TorchListener(client, mirror, in_place=False)
    broadcaster = TorchBroadcaster(client, model := Net().fill(1))
    broadcaster.broadcast(model)
    assert listener.update_once()
    acting = [parameter.data for parameter in mirror.parameters()]
    broadcaster.broadcast(model.fill(2))
    assert listener.update_once()
    assert mirror.holds(2) and mirror.version == 2
    assert all(bool((tensor == 1).all()) for tensor in acting)


@pytest.mark.parametrize("kind", ["training", "rate", "rlx"])
def test_only_pools_that_wait_for_actions_let_parameters_be_written_to(client: RedisClient, kind: str) -> None:
    overrides = ["env.rate_hz=50"] if kind == "rate" else []
    config = load_config("cartpole-rlx" if kind == "rlx" else "cartpole-dqn", overrides)
    spaces = build_spaces(config)
    model = build_acting_model(config, spaces)
    broadcaster = TorchBroadcaster(client, model)
    broadcaster.broadcast(model)
    process: Any = MagicMock(
        config=config, parameter_client=client, stop=threading.Event(), rng=lambda: np.random.default_rng(0)
    )
    with contextlib.ExitStack() as stack:
        pool = build_rlx_pool(config, ServerOptions()) if kind == "rlx" else build_pool(config, index=0)
        stack.callback(pool.close)
        acting: Any = ActingSession(process, stack, pool, spaces, is_greedy=True).loop.agent.model
        before = [parameter.data for parameter in acting.parameters()]
        values = [tensor.clone() for tensor in before]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        version = broadcaster.broadcast(model)
        assert acting.wait_for_version(version, 30)
        assert all(map(torch.equal, acting.tensors().values(), model.tensors().values()))
        assert all(map(torch.equal, before, values)) is (kind != "training")


def test_thread_follows_notices_without_polling(client: RedisClient, listener: TorchListener) -> None:
    listener.run_listener_thread()
    listener.run_listener_thread()
    model = Net()
    broadcaster = TorchBroadcaster(client, model)
    for value in range(1, 6):
        version = broadcaster.broadcast(model.fill(value))
        wait_until(lambda version=version: listener.version == version)
        assert listener.model.holds(value)
    listener.check()


def test_thread_polls_when_a_notice_is_lost(client: RedisClient) -> None:
    listener = TorchListener(client, Net(), poll_interval_s=0.05)
    broadcaster = TorchBroadcaster(client, Net().fill(1))
    broadcaster.broadcast()
    listener.run_listener_thread()
    assert listener.wait_for_first(30)
    client.redis.hset(client.policy_keys().params, "version", "7")  # without a notice
    wait_until(lambda: listener.version == 7)
    listener.close()


def test_parameters_that_are_held_are_replaced_when_they_are_released(
    client: RedisClient, listener: TorchListener
) -> None:
    """A trajectory is acted by one version, whenever a newer one is published."""
    model = Net()
    broadcaster = TorchBroadcaster(client, model)
    broadcaster.broadcast(model.fill(1), "first")
    listener.run_listener_thread()
    assert listener.wait_for_first(30)
    listener.hold()
    broadcaster.broadcast(model.fill(2))
    broadcaster.broadcast(model.fill(3), "third")
    wait_until(lambda: listener._has_missed)
    assert listener.model.holds(1)
    assert (listener.version, listener.message) == (1, "first")
    listener.release()
    assert listener.model.holds(3)
    assert (listener.version, listener.message) == (3, "third")
    broadcaster.broadcast(model.fill(4))
    wait_until(lambda: listener.version == 4)


def test_many_notices_are_one_fetch(client: RedisClient, listener: TorchListener) -> None:
    model = Net()
    broadcaster = TorchBroadcaster(client, model)
    broadcaster.broadcast(model.fill(1))
    listener.step()  # subscribes, reads, and waits for the first notice no longer than a moment
    for value in range(2, 12):
        broadcaster.broadcast(model.fill(value))
    wait_until(lambda: (listener.step(), listener.version == 11)[1])
    assert listener.metrics()["listener/updates_total"] == 2


@pytest.mark.parametrize(("newest", "round_trips"), [(True, 1), (False, 2)])
def test_a_notice_saves_a_round_trip_and_is_not_believed(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, newest: bool, round_trips: int
) -> None:
    model = Net(hidden=20_000)  # too large to stand in the hash
    broadcaster, listener = TorchBroadcaster(client, model), TorchListener(client, Net(hidden=20_000))
    broadcaster.broadcast(model.fill(1))
    listener.step()
    assert listener.model.holds(1)
    notices = []
    for value in (2, 3):
        broadcaster.broadcast(model.fill(value))
        notices.append(client.redis.hget(client.policy_keys().params, "id"))
    if not newest:
        client.redis.publish(client.policy_keys().notice, b"9 %s 1" % notices[0])  # whose bytes are still there
        client.redis.ping()  # Redis has written the notice to the listener before it reads this
    ask, asked = DirectConnection.ask, []

    def count(self: DirectConnection, *commands: Any, **options: Any) -> Any:
        asked.append(commands)
        return ask(self, *commands, **options)

    monkeypatch.setattr(DirectConnection, "ask", count)
    wait_until(lambda: listener.step() is None and listener.version == 3)
    assert listener.model.holds(3)
    assert len(asked) == round_trips
    listener.close()


def test_wait_for_first(client: RedisClient, listener: TorchListener) -> None:
    assert not listener.wait_for_first(0.05)
    stop = threading.Event()
    stop.set()
    assert not listener.wait_for_first(30, stop)
    TorchBroadcaster(client, Net().fill(1)).broadcast()
    assert listener.wait_for_first(30)
    assert listener.model.holds(1)


def test_swap_waits_for_the_forward_pass(client: RedisClient, listener: TorchListener) -> None:
    TorchBroadcaster(client, Net().fill(1)).broadcast()
    listener.run_listener_thread()
    with listener.model.lock:
        held = (listener.model.holds(-1), listener.model.version)
        fetched = listener._fetch_newer()  # reading needs no lock
        assert (listener.model.holds(-1), listener.model.version) == held
    assert fetched is None or fetched.version == 1
    assert listener.wait_for_first(30)


def test_policies_do_not_disturb_each_other(client: RedisClient) -> None:
    listeners = []
    for value, policy in enumerate(["default", "other"], start=1):
        TorchBroadcaster(client, Net().fill(value), policy=policy).broadcast()
        listeners.append(TorchListener(client, Net(), policy=policy))
    assert all(listener.update_once() for listener in listeners)
    assert [listener.model.holds(value) for value, listener in enumerate(listeners, start=1)] == [True, True]


def test_versions_follow_what_was_proposed_and_stored(client: RedisClient) -> None:
    first = TorchBroadcaster(client, Net())
    first.propose(41)
    first.propose(7)
    assert first.broadcast() == 42
    first.close()
    second = TorchBroadcaster(client, Net())
    second.propose(3)
    assert second.broadcast() == 43


def test_old_parts_are_removed_at_the_next_publication_but_one(client: RedisClient) -> None:
    model = Net()
    broadcaster = TorchBroadcaster(client, model, part_bytes=200)
    counts = []
    for value in range(5):
        broadcaster.broadcast(model.fill(value))
        counts.append(sum(key.startswith("part:") for key in keys_of(client)))
    one = counts[0]
    assert one > 1
    assert counts == [one, 2 * one, 2 * one, 2 * one, 2 * one]
    broadcaster.close()
    follower = TorchBroadcaster(client, model)  # a new process, and small enough now
    follower.broadcast()
    follower.broadcast()
    follower.broadcast()
    assert not any(key.startswith("part:") for key in keys_of(client))


def test_large_parameters_go_beside_the_script_and_the_last_two_stay(client: RedisClient) -> None:
    model = Net(hidden=5000)
    broadcaster = TorchBroadcaster(client, model)
    listener = TorchListener(client, Net(hidden=5000))
    counts = []
    for value in range(4):
        broadcaster.broadcast(model.fill(value))
        counts.append(sum(key.startswith("part:") for key in keys_of(client)))
        assert listener.update_once()
        assert listener.model.holds(value)
    assert counts == [1, 2, 2, 2]
    assert client.redis.hstrlen(client.policy_keys().params, "data") == 0
    assert {client.redis.pttl(key) for key in client.redis.scan_iter(match=f"*{client.run}*part*")} == {-1}
    follower = TorchBroadcaster(client, Net(hidden=5000), lease_s=0.05)
    assert follower.restore()
    assert follower.model.holds(3)


def test_parameters_of_several_parts_are_stored_in_one_round_trip(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, mirror = Net(hidden=160_000), Net(hidden=160_000)  # 4.5 MB
    broadcaster, listener = TorchBroadcaster(client, model), TorchListener(client, mirror)
    broadcaster.broadcast(model.fill(1))
    begin, begun = ScriptChannel.begin, []

    def count(channel: ScriptChannel, name: str, keys: Any, args: Any, contents: Any) -> None:
        begun.append([len(piece) for pieces in contents.values() for piece in pieces])
        begin(channel, name, keys, args, contents)

    monkeypatch.setattr(ScriptChannel, "begin", count)
    monkeypatch.setattr("surreal.distributed.parameters.broadcaster.upload_parts", None)
    for value in (2, 3):
        assert broadcaster.broadcast(model.fill(value)) == value
        assert listener.update_once()
        assert mirror.holds(value)
    assert [sizes[:2] for sizes in begun] == 2 * [2 * [PART_BYTES]]
    assert sum(begun[0]) == broadcaster.metrics()["broadcast/size_bytes"]


@pytest.mark.parametrize("sizes", [(5000, 5000, 100), (5000,), (1,), (3, 5000, 5000), (9000, 5000, 7), (1, 1, 1)])
def test_parts_are_joined_in_their_order(client: RedisClient, sizes: tuple[int, ...]) -> None:
    names = part_names(client.policy_keys(), "x", len(sizes))
    parts = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    upload_parts(client, names, [memoryview(part) for part in parts])
    connection = DirectConnection(client)
    memory = Memory(100_000, is_reused=True)
    for _ in range(2):
        assert bytes(fetch_parts(connection, names, memory.free()) or b"") == b"".join(parts)
    assert fetch_parts(connection, [*names, names[0] + "?"], memory) is None
    connection.close()


@pytest.mark.parametrize("sizes", [(5000, 5001), (60_000, 60_000), (200_000,)])
def test_parts_that_have_no_room_are_refused(client: RedisClient, sizes: tuple[int, ...]) -> None:
    names = part_names(client.policy_keys(), "x", len(sizes))
    upload_parts(client, names, [memoryview(bytes(size)) for size in sizes])
    with pytest.raises(CodecError, match="bytes are too many"):
        fetch_parts(DirectConnection(client), names, Memory(100_000))


def test_parts_in_several_round_trips_live_until_the_last(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.distributed.parameters.parts._UPLOAD_BYTES", 400)
    model = Net(hidden=100)
    broadcaster = TorchBroadcaster(client, model.fill(1), part_bytes=200)
    broadcaster.broadcast()
    listener = TorchListener(client, Net(hidden=100))
    assert listener.update_once()
    assert listener.model.holds(1)


def test_published_parts_do_not_expire_and_unpublished_ones_do(client: RedisClient) -> None:
    TorchBroadcaster(client, Net(), part_bytes=200).broadcast()
    assert {client.redis.pttl(key) for key in client.redis.scan_iter(match=f"*{client.run}*part*")} == {-1}
    names = part_names(client.policy_keys(), "abandoned", 2)
    upload_parts(client, names, [memoryview(b"a"), memoryview(b"b")])
    assert all(client.redis.pttl(name) > 0 for name in names)


def test_parts_that_expired_are_uploaded_again(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from surreal.distributed.parameters import broadcaster as module

    upload, calls = module.upload_parts, []

    def lose_one(client: RedisClient, names: list[str], parts: list[memoryview], stop: threading.Event | None) -> None:
        upload(client, names, parts, stop)
        calls.append(names)
        if len(calls) < losses:
            client.redis.unlink(names[1])

    monkeypatch.setattr(module, "upload_parts", lose_one)
    losses = 2
    broadcaster = TorchBroadcaster(client, Net().fill(3), part_bytes=200)
    assert broadcaster.broadcast() == 1
    assert len(calls) == 2
    listener = TorchListener(client, Net())
    assert listener.update_once()
    assert listener.model.holds(3)
    losses = 1000
    with pytest.raises(RedisUnavailableError, match="expired in Redis"):
        broadcaster.broadcast()


def test_listener_reads_the_newest_when_parts_vanish(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from surreal.distributed.parameters import published as module

    model = Net()
    broadcaster = TorchBroadcaster(client, model, part_bytes=200)
    broadcaster.broadcast(model.fill(1))
    fetch, calls = module.fetch_parts, []

    def slow(connection: DirectConnection, names: list[str], memory: Memory) -> Any:
        calls.append(names)
        if len(calls) == 1:
            for value in (2, 3, 4):
                broadcaster.broadcast(model.fill(value))
        return fetch(connection, names, memory)

    monkeypatch.setattr(module, "fetch_parts", slow)
    listener = TorchListener(client, Net())
    assert listener.update_once()
    assert len(calls) == 2
    assert listener.version == 4
    assert listener.model.holds(4)


@pytest.mark.parametrize(("hidden", "part_bytes"), [(8, 1 << 20), (8, 200), (5000, 1 << 20)])
def test_publication_repeated_after_a_lost_answer_counts_once_and_stays(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, hidden: int, part_bytes: int
) -> None:
    finish, lose = ScriptChannel.finish, iter([True, True, False])

    def answer_lost(channel: ScriptChannel) -> Any:
        reply = finish(channel)
        if next(lose, False):
            raise redis.ConnectionError("the answer was lost")
        return reply

    monkeypatch.setattr(ScriptChannel, "finish", answer_lost)
    broadcaster = TorchBroadcaster(client, Net(hidden).fill(1), part_bytes=part_bytes)
    assert broadcaster.broadcast() == 1
    assert {client.redis.pttl(key) for key in client.redis.scan_iter(match=f"*{client.run}*part*")} <= {-1}
    assert broadcaster.broadcast() == 2
    listener = TorchListener(client, Net(hidden))
    assert listener.update_once()
    assert listener.model.holds(1)


# Going on


@pytest.mark.parametrize("part_bytes", PARTS)
@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_learner_that_comes_back_goes_on_from_the_last_broadcast(
    client: RedisClient, part_bytes: int, is_lazy: bool
) -> None:
    killed = TorchBroadcaster(client, Net().fill(7), part_bytes=part_bytes, lease_s=0.05)
    killed.broadcast()
    killed.broadcast()
    model = LazyNet() if is_lazy else Net().fill(0)
    broadcaster = TorchBroadcaster(client, model, lease_s=0.05)
    assert broadcaster.restore()
    assert (model.holds(7), model.version) == (True, 2)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert broadcaster.broadcast() == 3
    mirror = Net()
    assert TorchListener(client, mirror).update_once()
    assert mirror.holds(7)


def test_nothing_to_go_on_from_leaves_the_model(client: RedisClient) -> None:
    model = Net().fill(3)
    broadcaster = TorchBroadcaster(client, model)
    assert not broadcaster.restore()
    assert (model.holds(3), model.version) == (True, 0)
    assert broadcaster.broadcast() == 1


def test_restored_versions_go_on_when_redis_was_emptied_in_between(client: RedisClient) -> None:
    first = TorchBroadcaster(client, Net())
    first.propose(40)
    first.broadcast()
    second = TorchBroadcaster(client, Net())
    assert second.restore()
    client.delete_run()
    assert second.broadcast() == 42


def test_parameters_of_another_model_are_not_gone_on_from(client: RedisClient) -> None:
    TorchBroadcaster(client, Net(hidden=16)).broadcast()
    model = Net().fill(3)
    with pytest.raises(ContractError, match=f"run {client.run} holds parameters of another model"):
        TorchBroadcaster(client, model).restore()
    assert model.holds(3)


def test_a_session_takes_over_the_last_broadcast_and_says_nothing_of_an_old_run(
    client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    first = TorchBroadcaster(client, Net().fill(4))
    first.broadcast(message=write_progress(40, 70))
    first.close()
    model: Any = Net()
    learner: Any = SimpleNamespace(model=model, updates=0, skipped_updates=0)
    replay: Any = SimpleNamespace(global_step=70, commit=lambda _: None)
    second = TorchBroadcaster(client, model)
    session = Publishing(load_config("cartpole-dqn"), client, model, learner, replay, second)
    session.take_over()
    assert (learner.updates, model.version) == (40, 1)
    assert model.holds(4)
    session.begin([])
    assert second.version == 2
    assert "is not new" not in caplog.text


def test_a_learner_that_replaces_an_old_run_says_so_once(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    first = TorchBroadcaster(client, Net())
    first.broadcast()
    first.broadcast()
    first.close()
    assert "is not new" not in caplog.text
    age_s = 2 * 3600 + 60
    published_s = int(client.redis.hget(client.policy_keys().params, "published_s") or 0)
    client.redis.hset(client.policy_keys().params, "published_s", published_s - age_s)
    second = TorchBroadcaster(client, Net())
    second.broadcast()
    second.broadcast()
    expected = f"run {client.run} at {client.address} is not new: policy default is at version 2, published 2 h ago"
    assert [record.levelname for record in caplog.records if record.getMessage().startswith(expected)] == ["WARNING"]


def test_who_knows_of_the_old_run_is_told_nothing(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for prepare in ("none", "restore", "propose", "load"):
        broadcaster = TorchBroadcaster(client, Net())
        if prepare == "restore":
            assert broadcaster.restore()
            assert f"run {client.run} continues: policy default, version 1, published" in caplog.text
        elif prepare == "propose":  # as one with a checkpoint does
            broadcaster.propose(1)
        elif prepare == "load":
            assert TorchListener(client, broadcaster.model).update_once()
        broadcaster.broadcast()
        assert "is replaced now" not in caplog.text, prepare
        broadcaster.close()


def test_an_agent_of_an_old_run_says_so_once(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    old = TorchBroadcaster(client, Net())
    old.broadcast()
    assert TorchListener(client, Net()).update_once()
    assert caplog.messages == []
    old.close()
    listener = TorchListener(client, Net())
    assert listener.update_once()
    assert "policy default is at version 1" in caplog.text
    assert "no learner publishes it now" in caplog.text
    caplog.clear()
    TorchBroadcaster(client, listener.model).broadcast()
    assert listener.update_once()
    assert caplog.messages == []


# Waits that say what they are for


def test_a_wait_for_a_lease_says_so_once(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.1)
    TorchBroadcaster(client, Net(), lease_s=1.0).broadcast()
    assert TorchBroadcaster(client, Net(), lease_s=0.1).broadcast() == 2
    expected = f"waiting until the learner that published policy default of run {client.run} last is gone, at most 1 s"
    assert caplog.messages.count(expected) == 1


def test_a_wait_for_a_learner_says_so_once(
    client: RedisClient, listener: TorchListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert not listener.wait_for_first(0.3)
    assert "waiting" not in caplog.text
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.1)
    assert not listener.wait_for_first(1.0)
    expected = f"waiting for a learner to publish policy default of run {client.run}, at most 1 s"
    assert caplog.messages.count(expected) == 1


# Leases


def test_a_broadcast_that_failed_leaves_no_wait_for_the_next(
    client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    holder = TorchBroadcaster(client, Net(), lease_s=60)
    holder.broadcast()
    stop = threading.Event()
    late = TorchBroadcaster(client, Net(), lease_s=0.1, stop=stop)
    stop.set()
    for _ in range(2):
        with pytest.raises(StoppedError):
            late.broadcast()
        assert late._wait.notice.began_s is None
    stop.clear()
    holder.close()
    assert late.broadcast() == 2
    assert not [record for record in caplog.records if "waiting until the learner" in record.message]


def test_first_broadcast_waits_for_the_lease_of_one_that_died(client: RedisClient) -> None:
    TorchBroadcaster(client, Net(), lease_s=0.4).broadcast()
    assert TorchBroadcaster(client, Net(), lease_s=0.1).broadcast() == 2


@pytest.mark.parametrize("changes", [{"began": 1}, {"machine": "another", "lease_s": 0.05}], ids=["gone", "silent"])
def test_lease_that_redis_would_keep_for_an_hour_is_void_when_its_holder_is(client: RedisClient, changes: Any) -> None:
    """Redis' clock was set back while the broadcaster was down."""
    token = json.dumps(json.loads(make_token(60.0)) | changes)
    client.redis.set(client.policy_keys().lease, token, px=3_609_000)
    assert TorchBroadcaster(client, Net(), lease_s=60).broadcast() == 1


def test_lease_that_was_given_back_is_free_at_once(client: RedisClient) -> None:
    first = TorchBroadcaster(client, Net(), lease_s=60)
    first.broadcast()
    first.close()
    assert TorchBroadcaster(client, Net(), lease_s=60).broadcast() == 2


def test_two_living_broadcasters_are_refused(client: RedisClient) -> None:
    first = TorchBroadcaster(client, Net(), lease_s=4.0)
    first.broadcast()
    stop = threading.Event()

    def keep_alive() -> None:
        while not stop.wait(0.02):
            first._next_maintenance = 0.0
            first.maintain()

    thread = threading.Thread(target=keep_alive)
    thread.start()
    refusal = f"policy default in run {client.run} are published by another learner; stop it"
    try:
        with pytest.raises(LeaseError, match=refusal):
            TorchBroadcaster(client, Net(), lease_s=0.1).broadcast()
    finally:
        stop.set()
        thread.join()
    assert first.broadcast() == 2


def test_waiting_for_a_lease_stops_with_the_owner(client: RedisClient) -> None:
    TorchBroadcaster(client, Net(), lease_s=60).broadcast()
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        TorchBroadcaster(client, Net(), stop=stop).broadcast()


@pytest.mark.parametrize("call", ["broadcast", "maintain"])
@pytest.mark.parametrize("is_alive", [True, False])
def test_broadcaster_that_was_followed_by_another_is_fenced_out(client: RedisClient, call: str, is_alive: bool) -> None:
    old, new = TorchBroadcaster(client, Net(), lease_s=0.05), TorchBroadcaster(client, Net(), lease_s=60)
    old.broadcast()
    new.broadcast()
    if not is_alive:
        client.redis.unlink(client.policy_keys().lease)
    old._next_maintenance = 0.0
    with pytest.raises(LeaseError, match="another learner took over"):
        getattr(old, call)()
    old.close()
    assert new.broadcast() == 3


@pytest.mark.parametrize("call", ["broadcast", "maintain"])
def test_broadcaster_goes_on_when_redis_went_back_to_its_predecessor(client: RedisClient, call: str) -> None:
    old, new = TorchBroadcaster(client, Net(), lease_s=0.05), TorchBroadcaster(client, Net())
    keys = client.policy_keys()
    old.broadcast()
    earlier = client.redis.hgetall(keys.params)
    new.broadcast()
    assert new.broadcast() == 3
    client.redis.unlink(keys.params, keys.lease)
    client.redis.hset(keys.params, mapping=earlier)
    new._next_maintenance = 0.0
    getattr(new, call)()
    assert new.version == 4
    assert client.redis.hget(keys.params, "version") == b"4"
    with pytest.raises(LeaseError, match="another learner took over"):
        old.broadcast()
    new.close()


def test_maintain_renews_the_lease_and_talks_seldom(client: RedisClient) -> None:
    broadcaster = TorchBroadcaster(client, Net(), lease_s=30)
    broadcaster.maintain()
    assert keys_of(client) == set()
    broadcaster.broadcast()
    lease = client.policy_keys().lease
    client.redis.pexpire(lease, 500)
    broadcaster.maintain()
    assert client.redis.pttl(lease) <= 500
    broadcaster._next_maintenance = 0.0
    broadcaster.maintain()
    assert client.redis.pttl(lease) > 20_000


# Loss of Redis


def test_emptied_redis_gets_the_parameters_back_under_a_new_epoch(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        model = Net().fill(5)
        broadcaster = TorchBroadcaster(client, model, part_bytes=200)
        listener = TorchListener(client, Net())
        broadcaster.broadcast(message="kept")
        epoch = broadcaster.epoch
        listener.run_listener_thread()
        assert listener.wait_for_first(30)
        model.fill(6)  # learned since, not broadcast
        server.kill()
        server.start()
        broadcaster._next_maintenance = 0.0
        broadcaster.maintain()
        assert broadcaster.version == 2
        assert broadcaster.epoch != epoch
        assert broadcaster.metrics()["broadcast/republished_total"] == 1
        wait_until(lambda: listener.version == 2)
        assert listener.epoch == broadcaster.epoch
        assert listener.message == "kept"
        assert listener.model.holds(5)
        assert broadcaster.broadcast() == 3
        listener.check()
        listener.close()


def test_listener_accepts_a_lower_version_of_a_new_epoch(client: RedisClient, listener: TorchListener) -> None:
    broadcaster = TorchBroadcaster(client, Net().fill(1))
    broadcaster.propose(100)
    broadcaster.broadcast()
    assert listener.update_once()
    client.delete_run()
    other = TorchBroadcaster(client, Net().fill(2))
    assert other.broadcast() == 1
    assert listener.update_once()
    assert (listener.version, listener.model.holds(2)) == (1, True)


def test_listener_ignores_an_older_version_of_its_epoch(client: RedisClient, listener: TorchListener) -> None:
    broadcaster = TorchBroadcaster(client, Net())
    broadcaster.propose(9)
    broadcaster.broadcast()
    assert listener.update_once()
    client.redis.hset(client.policy_keys().params, "version", "3")  # an old backup came back
    assert not listener.update_once()
    broadcaster._next_maintenance = 0.0
    broadcaster.maintain()
    assert broadcaster.version == 11
    assert listener.update_once()


def test_small_parameters_are_published_even_when_redis_is_full(
    start_redis: Callable[..., Any], redis_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis(binary=redis_binary, maxmemory="8mb")
    with RedisClient(server.address) as client:
        with contextlib.suppress(OutOfMemoryError):
            for size in (100_000, 1000):
                for i in range(100_000):
                    client.redis.set(f"fill:{size}:{i}", bytes(size))
        big = Net(hidden=20_000)
        broadcaster = TorchBroadcaster(client, big.fill(1), lease_s=0.05)
        assert broadcaster.broadcast() == 1
        assert broadcaster.broadcast(big.fill(2)) == 2
        broadcaster._next_maintenance = 0.0
        broadcaster.maintain()
        listener = TorchListener(client, Net(hidden=20_000))
        assert listener.update_once()
        assert listener.model.holds(2)
        monkeypatch.setattr("surreal.distributed.parameters.parts.ROOM_TIMEOUT_S", 0.0)
        broadcaster.close()
        with pytest.raises(RedisUnavailableError, match="is full: no room for another"):
            TorchBroadcaster(client, big, part_bytes=100_000).broadcast()


def test_parameters_of_several_parts_are_published_when_only_some_find_room(
    start_redis: Callable[..., Any], redis_binary: str
) -> None:
    server = start_redis(binary=redis_binary, maxmemory="8mb")
    with RedisClient(server.address) as client:
        with contextlib.suppress(OutOfMemoryError):
            for i in range(1000):
                client.redis.set(f"fill:{i}", bytes(100_000))
        client.redis.unlink(*[f"fill:{i}" for i in range(35)])
        wait_until(lambda: client.redis.info("memory")["used_memory"] < 6_000_000)
        big = Net(hidden=160_000)  # 4.5 MB
        assert TorchBroadcaster(client, big.fill(1)).broadcast() == 1
        listener = TorchListener(client, Net(hidden=160_000))
        assert listener.update_once()
        assert listener.model.holds(1)
        assert not any("part" in key for key in keys_of(client)), "those that found room are not left behind"


def test_parameters_that_are_refused_leave_those_that_redis_may_lose(client: RedisClient) -> None:
    model = Net()
    broadcaster, listener = TorchBroadcaster(client, model), TorchListener(client, Net())
    broadcaster.broadcast(model.fill(5))
    with pytest.raises(DivergedError):
        broadcaster.broadcast(model.fill(float("nan")))
    client.redis.unlink(client.policy_keys().params)
    broadcaster._next_maintenance = 0.0
    broadcaster.maintain()
    assert listener.update_once()
    assert listener.model.holds(5)


# Contracts


def test_model_that_differs_is_refused_on_either_side(client: RedisClient) -> None:
    TorchBroadcaster(client, Net(hidden=128)).broadcast()
    expected = rf"^fc1.weight is \[64, 4\] here and \[128, 4\] in run {client.run} \(2 more differ\)"
    with pytest.raises(ContractError, match=expected) as caught:
        TorchListener(client, Net(hidden=64)).update_once()
    assert "fc1.bias.shape: [128] -> [64]" in caught.value.diff
    with pytest.raises(ContractError, match=expected):
        TorchBroadcaster(client, Net(hidden=64), lease_s=0.01).broadcast()


def test_listener_that_comes_first_has_no_say(client: RedisClient, listener: TorchListener) -> None:
    assert not listener.update_once()
    assert not client.redis.exists(client.policy_keys().contract)
    TorchBroadcaster(client, Net(hidden=9)).broadcast()
    with pytest.raises(ContractError, match=r"here and|differ"):
        listener.update_once()


def test_failure_of_the_thread_is_raised_in_the_owner(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    TorchBroadcaster(client, Net(hidden=128)).broadcast()
    listener = TorchListener(client, Net(hidden=64))
    listener.run_listener_thread()
    with pytest.raises(ContractError, match=r"fc1\.weight is"):
        listener.wait_for_first(30)
    with pytest.raises(ContractError, match=r"fc1\.weight is"):
        listener.check()
    assert "the listener of policy default ends: fc1.weight is" in caplog.text
    listener.close()


def test_other_failures_of_the_thread_are_raised_too(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = TorchListener(client, Net())
    monkeypatch.setattr(listener, "update_once", lambda: 1 / 0)
    listener.run_listener_thread()
    with pytest.raises(ThreadFailedError, match="division by zero"):
        listener.wait_for_first(30)
    listener.close()


class Constant(Agent):
    """Needs nothing of its model but that it is up to date."""

    def _act(self, obs: Any, explore: Any) -> Any:
        return torch.zeros(len(explore), dtype=torch.int64)


def act_until_it_fails(agent: Agent) -> None:
    """The plain loop, which calls nothing of the listener."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        agent.act([0.0, 0.0, 0.0, 0.0])
        time.sleep(0.005)


def test_an_agent_whose_listener_died_stops_with_the_reason(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    TorchBroadcaster(client, Net(hidden=128)).broadcast()
    model = Net(hidden=64)
    listener, agent = TorchListener(client, model), Constant(model)
    listener.run_listener_thread()
    with pytest.raises(ContractError, match=r"fc1\.weight is \[64, 4\] here and \[128, 4\] in run"):
        act_until_it_fails(agent)
    monkeypatch.setattr(listener, "update_once", lambda: 1 / 0)
    listener.run_listener_thread()
    with pytest.raises(ThreadFailedError, match="the listener of policy default failed: division by zero"):
        act_until_it_fails(agent)
    monkeypatch.undo()
    client.delete_run()
    listener.run_listener_thread()  # a new start is a new chance
    assert agent.act([0.0, 0.0, 0.0, 0.0]) == 0
    listener.close()
    assert agent.act([0.0, 0.0, 0.0, 0.0]) == 0, "a listener that was closed is no failure"


class LazyNet(Net):
    """A network without a first layer until it sees an observation or parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = False

    @property
    def is_materialized(self) -> bool:
        return self.is_ready

    def materialize_from(self, header: Any) -> None:
        self.is_ready = True


def test_model_without_parameters_is_created_from_the_first_ones(client: RedisClient) -> None:
    listener = TorchListener(client, LazyNet())
    assert not listener.update_once()
    assert "contract" not in keys_of(client)
    broadcaster = TorchBroadcaster(client, Net().fill(1))
    broadcaster.broadcast()
    assert listener.update_once()
    assert listener.model.holds(1)
    with pytest.raises(ValueError, match="no parameters yet"):
        TorchBroadcaster(client, LazyNet(), policy="lazy").broadcast()


def test_model_without_parameters_that_does_not_fit_is_refused(client: RedisClient) -> None:
    broadcaster = TorchBroadcaster(client, Net(hidden=16), lease_s=60)
    broadcaster.broadcast()
    with pytest.raises(ContractError, match=r"fc1.weight.*\[16, 4\].*\[8, 4\]"):
        TorchListener(client, LazyNet()).update_once()


def test_leftover_parameters_of_another_model_are_skipped(
    client: RedisClient, listener: TorchListener, caplog: pytest.LogCaptureFixture
) -> None:
    old = TorchBroadcaster(client, Net(hidden=16))
    old.broadcast()
    old.close()
    client.redis.unlink(client.policy_keys().contract)  # expired: nobody of the old time is alive
    assert not listener.update_once()
    assert not listener.update_once()
    assert caplog.text.count("parameters of another model that no learner publishes anymore") == 1
    TorchBroadcaster(client, Net().fill(3)).broadcast()
    assert listener.update_once()
    assert listener.model.holds(3)


# Hostile bytes


@pytest.mark.parametrize(
    "fields",
    [
        {"data": b"nonsense"},
        {"data": encode_parameters({"a": torch.zeros(2)})[:-1]},
        {"version": b"-1"},
        {"version": b"many"},
        {"parts": b"99999999999"},
        {"parts": b"1", "id": b"../../other:key"},
        {"parts": b"x"},
    ],
)
def test_hostile_parameters_are_refused_and_the_listener_goes_on(
    client: RedisClient, listener: TorchListener, caplog: pytest.LogCaptureFixture, fields: dict[str, bytes]
) -> None:
    caplog.set_level(logging.CRITICAL)
    broadcaster = TorchBroadcaster(client, Net().fill(4))
    broadcaster.broadcast()
    client.redis.hset(client.policy_keys().params, mapping=fields)
    assert not listener.update_once()
    assert listener.metrics()["listener/refused_total"] == 1
    assert listener.model.holds(-1)
    client.delete_run()
    TorchBroadcaster(client, Net().fill(4)).broadcast()
    assert listener.update_once()
    assert listener.model.holds(4)


def test_too_large_parameters_are_refused(client: RedisClient) -> None:
    broadcaster = TorchBroadcaster(client, Net(), part_bytes=200)
    broadcaster.broadcast()
    listener = TorchListener(client, Net(), max_bytes=300)
    assert not listener.update_once()
    assert listener.metrics()["listener/refused_total"] == 1


@pytest.mark.parametrize("settings", [{"lease_s": 0}, {"part_bytes": 0}, {"part_bytes": 1 << 40}, {"policy": "a b"}])
def test_bad_settings_of_the_broadcaster(client: RedisClient, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        TorchBroadcaster(client, Net(), **settings)


def test_bad_settings_of_the_listener(client: RedisClient) -> None:
    with pytest.raises(ValueError, match="must be"):
        TorchListener(client, Net(), poll_interval_s=0)


# Redis Cluster


@pytest.fixture
def cluster(redis_binary: str, tmp_path: Path, free_port: int) -> Iterator[str]:
    """A Redis Cluster of one node: it refuses scripts whose keys lie in several slots."""
    command = [redis_binary, "--port", str(free_port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    process = subprocess.Popen([*command, "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    address = f"127.0.0.1:{free_port}"
    try:
        with RedisClient(address) as client:
            client.check_server(timeout_s=60)
            client.execute("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: b"cluster_state:ok" in client.execute("CLUSTER", "INFO"))
        yield address
    finally:
        process.terminate()
        process.wait()


def test_broadcast_in_a_redis_cluster(cluster: str) -> None:
    with RedisClient(cluster) as client:
        for part_bytes in PARTS:
            policy = f"parts-of-{part_bytes}"
            model = Net()
            broadcaster = TorchBroadcaster(client, model, policy=policy, part_bytes=part_bytes)
            listener = TorchListener(client, Net(), policy=policy)
            listener.run_listener_thread()
            for value in range(3):
                broadcaster.broadcast(model.fill(value))
            wait_until(lambda listener=listener: listener.version == 3)
            assert listener.model.holds(2)
            broadcaster.close()
            listener.close()
        assert client.delete_run() > 0
