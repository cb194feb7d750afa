"""Versions, steps and counts that no process of ours has written: they are bounded where they enter, and put right."""

from __future__ import annotations

import json
import logging
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from surreal.base.errors import CodecError
from surreal.base.pytorch import Module
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.values import MAX_VERSION
from surreal.config import load_config
from surreal.distributed import ExpSender, RedisClient, TorchBroadcaster, TorchListener
from surreal.distributed.experience.codec import Contract, decode, encode
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import MAX_AHEAD, Heartbeat, live_processes
from surreal.replay.stream.owner import StreamOwner
from surreal.run.session.publishing import Publishing

IMPOSSIBLE = ["2147483648", "9007199254740992", "-1", "nan", "1e308", "x" * 65536, '{"a": [1]}']
KNOWN_STEPS = 1000


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 1)


def begin_learner(client: RedisClient) -> TorchBroadcaster:
    """Do what a learner that comes back does with versions."""
    model: Any = Net()
    broadcaster = TorchBroadcaster(client, model)
    learner: Any = SimpleNamespace(model=model, updates=0, skipped_updates=0)
    replay: Any = SimpleNamespace(global_step=0, learned={}, commit=lambda _: None)
    publishing = Publishing(load_config("cartpole-dqn"), client, model, learner, replay, broadcaster)
    publishing.take_over()
    publishing.begin(live_processes(client))
    return broadcaster


@pytest.mark.parametrize("version", [2**31, 2**53])
def test_redis_with_an_impossible_version_is_continued_under_a_new_epoch(
    client: RedisClient, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = TorchBroadcaster(client, Net())
    first.broadcast()
    first.close()
    client.redis.hset(client.policy_keys().params, "version", version)
    listener = TorchListener(client, Net())
    assert not listener.update_once()
    assert f"their version is {version}" in caplog.text
    second = begin_learner(client)
    assert f"version {version} is not used" in caplog.text
    assert second.version == 1
    assert second.epoch != first.epoch
    assert listener.update_once()
    assert listener.version == 1
    assert second.broadcast() == 2
    assert listener.update_once()


@pytest.mark.parametrize("version", [2**31, 2**53, MAX_AHEAD + 8])
def test_a_heartbeat_cannot_move_versions_far(client: RedisClient, version: int) -> None:
    first = TorchBroadcaster(client, Net())
    first.propose(6)
    first.broadcast()
    first.close()
    now_s = client.server_time_s()
    beat = Heartbeat("a", "agent", "agent-0", 1, "h", now_s, now_s, version=version)
    client.redis.hset(client.run_keys.processes, "a", beat.encode())
    assert begin_learner(client).version == 8


def test_experience_with_an_impossible_version_is_refused() -> None:
    contract = Contract(ObsSpec.from_obs(np.zeros(2, np.float32)), ArraySpec("action", (), np.dtype(np.int64)), (), 0)
    segments = np.array([[2, 1, 0, 0, 0]], np.int32)
    for version, is_possible in ((-1, True), (MAX_VERSION, True), (MAX_VERSION + 1, False), (-2, False)):
        columns = {
            "action": np.zeros(1, np.int64),
            "reward": np.zeros(1, np.float32),
            "flags": np.zeros(1, np.uint8),
            "version": np.array([version], np.int32),
        }
        chunk = encode(contract, segments, columns, [np.zeros((2, 2), np.float32)])
        block = b"".join(piece.tobytes() for piece in chunk.pieces[:1])
        if is_possible:
            assert decode(contract, chunk.head, chunk.table, block).columns["version"] == version
        else:
            with pytest.raises(CodecError, match="parameter version"):
                decode(contract, chunk.head, chunk.table, block)


def make_owner(shards: ReplayShards) -> StreamOwner:
    owner = StreamOwner(shards.stream(0), max_bytes=1 << 20, lease_s=5.0, stop=threading.Event())
    owner.steps = KNOWN_STEPS  # as its checkpoint says
    return owner


def send_step(sender: ExpSender) -> None:
    obs = np.zeros(2, np.float32)
    sender.send([obs, obs], 0, 1.0, done=False)
    sender.flush()


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_counts_of_a_stream_are_put_right_by_its_owner(client: RedisClient, value: str) -> None:
    """Whatever an agent writes into the stream's counts: senders send, and an owner that comes back continues."""
    fields = ["steps", "live_steps", "live_bytes", "samples", "refused_steps", "other_steps", "max_bytes", "chunks"]
    fields += ["counted", "epoch", "mode"]
    shards = ReplayShards.of(client)
    meta = shards.keys[0].meta
    owner = make_owner(shards)
    owner.tick(credit_steps=None, samples=0, other_steps=0)
    with ExpSender(shards) as sender:
        for sent, field in enumerate(fields, start=1):
            client.redis.hset(meta, field, value)
            owner.release(0, 0)
            owner = make_owner(shards)
            owner.steps += sent - 1
            state = owner.tick(credit_steps=None, samples=None, other_steps=0)
            assert state is not None
            assert state.is_owner
            assert state.steps == KNOWN_STEPS + sent - 1, field
            assert 0 <= state.live_bytes <= 2 * owner.bound_bytes, field
            assert 0 <= state.refused_steps <= 1 << 22, field
            assert state.epoch.isalnum(), field
            assert len(state.epoch) <= 64, field
            send_step(sender)
    assert json.loads(client.redis.hget(meta, "live_steps") or b"") >= 0


def test_the_other_mode_does_not_end_the_owner_of_a_stream(client: RedisClient) -> None:
    shards = ReplayShards.of(client)
    owner = make_owner(shards)
    owner.tick(credit_steps=None, samples=0, other_steps=0)
    client.redis.hset(shards.keys[0].meta, "mode", "consume")
    state = owner.tick(credit_steps=None, samples=None, other_steps=0)
    assert state is not None
    assert state.is_owner
    assert client.redis.hget(shards.keys[0].meta, "mode") == b"window"


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_senders_send_while_counts_are_impossible(client: RedisClient, value: str) -> None:
    shards = ReplayShards.of(client)
    with ExpSender(shards) as sender:
        send_step(sender)
        for field in ("steps", "live_steps", "samples", "refused_steps", "other_steps", "chunks"):
            client.redis.hset(shards.keys[0].meta, field, value)
            send_step(sender)
            assert sender.global_step >= 0
        assert sender.metrics()["sender/dropped_chunks_total"] == 0


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_senders_that_wait_ask_for_room_while_counts_are_impossible(client: RedisClient, value: str) -> None:
    keys = client.shard_keys()
    for field in ("steps", "live_bytes", "max_bytes", "refused_steps"):
        client.redis.delete(keys.meta)
        client.redis.hset(keys.meta, field, value)
        assert client.run_script("room", [keys.meta, keys.credit], [1, 100, 1 << 20, b"1"]) in (b"credit", b"full")
        assert int(client.redis.hget(keys.meta, "refused_steps") or 0) >= 0, field
    client.redis.set(keys.credit, value)
    assert client.run_script("room", [keys.meta, keys.credit], [1, 100, 1 << 20, b"1"]) in (b"credit", b"ok")


def test_a_lease_is_given_back_with_the_env_steps_where_redis_was_emptied(client: RedisClient) -> None:
    shards = ReplayShards.of(client)
    owner = make_owner(shards)
    owner.tick(credit_steps=None, samples=0, other_steps=7)
    client.delete_run()
    owner.release(5, 7)
    after = StreamOwner(shards.stream(0), max_bytes=1 << 20, lease_s=5.0, stop=threading.Event())
    state = after.tick(credit_steps=None, samples=None, other_steps=7)
    assert state is not None
    assert (state.steps, state.samples) == (KNOWN_STEPS, 5)


def test_what_was_not_told_to_redis_is_told_with_the_next_tick(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    shards = ReplayShards.of(client)
    owner = make_owner(shards)
    owner.tick(credit_steps=None, samples=0, other_steps=0)
    with ExpSender(shards) as sender:
        send_step(sender)
        send_step(sender)
    first, second = owner.stream.read(b"0-0", 10, None)
    chunk: Any = SimpleNamespace(epoch=owner.epoch, steps=1, stored_bytes=10)
    owner.evict(SimpleNamespace(**vars(chunk), entry_id=first.entry_id, chunk_id=first.chunk_id))  # type: ignore[arg-type]
    owner.mark(SimpleNamespace(**vars(chunk), entry_id=second.entry_id, chunk_id=second.chunk_id), b"\x80")  # type: ignore[arg-type]

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault in the middle of the call")

    with monkeypatch.context() as patch:
        patch.setattr(owner.stream, "tick", fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            owner.tick(credit_steps=None, samples=0, other_steps=0)
    state = owner.tick(credit_steps=None, samples=0, other_steps=0)
    assert state is not None
    assert state.removed_chunks == 1
    assert [entry.entry_id for entry in owner.stream.read(b"0-0", 10, None)] == [second.entry_id]
    assert owner.stream.marks() == {second.entry_id: b"\x80"}
