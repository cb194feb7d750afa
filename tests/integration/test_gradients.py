"""Gradients from their senders to a parameter server, through a real Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from redis.exceptions import ConnectionError as RedisConnectionError

from surreal.base.errors import QueueFullError, StoppedError
from surreal.distributed import RedisClient
from surreal.distributed.connection.direct import DirectConnection
from surreal.distributed.gradients.encoding import cut, encode
from surreal.distributed.gradients.queue import GradientQueue
from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.gradients.store import TAKEN_TTL_S, GradientHead, GradientStore

GROUPS = {
    "actor": {"w": torch.linspace(-1, 1, 12).reshape(4, 3), "b": torch.linspace(0, 3, 4)},
    "critic": {"w": torch.linspace(-2, 0.5, 8).reshape(2, 4)},
}
SIZE = 500  # bytes of one, at most


@pytest.fixture
def queue(client: RedisClient) -> Iterator[GradientQueue]:
    queue = GradientQueue(client)
    queue.expect(GROUPS)
    yield queue
    queue.close()


def scaled(factor: float) -> dict[str, dict[str, torch.Tensor]]:
    return {group: {name: factor * each for name, each in tensors.items()} for group, tensors in GROUPS.items()}


def is_same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        one[group].keys() == other[group].keys() and all(map(torch.equal, one[group].values(), other[group].values()))
        for group in one
    )


def keys_of(client: RedisClient, kind: str) -> list[bytes]:
    return [key for key in client.redis.scan_iter(match=f"*{client.run}*") if kind.encode() in key]


def steps_of(client: RedisClient) -> int:
    return int(client.redis.hget(client.shard_keys().meta, "steps") or 0)


@pytest.mark.parametrize("part_bytes", [64 << 20, 50])
def test_gradients_are_taken_in_the_order_in_which_they_were_pushed(
    client: RedisClient, queue: GradientQueue, part_bytes: int
) -> None:
    senders = [GradientSender(client, part_bytes=part_bytes) for _ in range(2)]
    for i in range(6):
        pushed = senders[i % 2].push(scaled(i), version=i, env_steps=10 + i, episodes=i, updates=2)
        assert pushed.status == "ok"
    for i in range(6):
        gradient = queue.take(1.0)
        assert gradient is not None
        assert is_same(gradient.tensors, scaled(i))
        assert (gradient.version, gradient.env_steps, gradient.episodes, gradient.updates) == (i, 10 + i, i, 2)
        assert gradient.global_step == sum(10 + k for k in range(i + 1))
        assert gradient.sender == senders[i % 2].sender_id
    assert queue.take(0.0) is None
    assert not keys_of(client, ":block:") + keys_of(client, ":staged:")
    assert queue.run_metrics()["gradients/waiting_bytes"] == 0
    assert queue.global_step == steps_of(client) == 75


def test_bfloat16_halves_the_bytes_and_arrives_as_float32(client: RedisClient, queue: GradientQueue) -> None:
    big = {"actor": {"w": torch.randn(4, 3)}}
    GradientSender(client, dtype="bfloat16").push(big, version=0, env_steps=1)
    gradient = queue.take(1.0)
    assert gradient is not None
    assert torch.equal(gradient.tensors["actor"]["w"], big["actor"]["w"].to(torch.bfloat16).float())


class Broken:
    """A channel whose answer is lost, though the call was executed."""

    def __init__(self, sender: GradientSender) -> None:
        self._channel = sender._channel
        self.finishes = 0

    def begin(self, *args: Any) -> None:
        self._channel.begin(*args)

    def finish(self) -> Any:
        answer = self._channel.finish()
        self.finishes += 1
        if self.finishes == 1:
            raise RedisConnectionError("lost")
        return answer


@pytest.mark.parametrize(("version", "status"), [(3, "ok"), (0, "stale")])
def test_a_push_that_is_repeated_counts_once(
    client: RedisClient, queue: GradientQueue, version: int, status: str
) -> None:
    queue.tell_version(3)
    sender = GradientSender(client, max_staleness=2)
    sender._channel = channel = Broken(sender)  # type: ignore[assignment]
    pushed = sender.push(GROUPS, version=version, env_steps=7)
    assert channel.finishes == 2
    assert (pushed.status, pushed.global_step, pushed.newest_version) == (status, 7, 3)
    assert steps_of(client) == 7
    assert (queue.take(0.0) is not None) == (status == "ok")
    assert queue.take(0.0) is None
    assert not keys_of(client, ":staged:")


@pytest.mark.parametrize("part_bytes", [64 << 20, 50])
def test_a_gradient_whose_answer_was_lost_is_read_again_and_removed_when_it_was_read(
    client: RedisClient, queue: GradientQueue, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    ask, lost = DirectConnection.ask, []

    def answer_lost(self: DirectConnection, *commands: Any, **options: Any) -> Any:
        answer = ask(self, *commands, **options)
        if commands[0][0] == "EVALSHA" and not lost:
            lost.append(commands)
            self.close()
            raise RedisConnectionError("lost")
        return answer

    GradientSender(client, part_bytes=part_bytes).push(GROUPS, version=0, env_steps=1)
    monkeypatch.setattr(DirectConnection, "ask", answer_lost)
    gradient = queue.take(1.0)
    assert gradient is not None
    assert lost
    assert is_same(gradient.tensors, GROUPS)
    left = keys_of(client, ":block:")
    assert left
    assert all(0 < client.redis.ttl(key) <= TAKEN_TTL_S for key in left)
    assert queue.take(0.0) is None
    assert not keys_of(client, ":block:")
    assert queue.metrics()["gradients/taken_total"] == 1


def test_a_server_that_forgot_its_scripts_is_told_them(client: RedisClient, queue: GradientQueue) -> None:
    GradientSender(client).push(GROUPS, version=0, env_steps=1)
    client.redis.script_flush()
    gradient = queue.take(1.0)
    assert gradient is not None
    assert is_same(gradient.tensors, GROUPS)


def test_stale_gradients_are_refused_and_counted_with_their_env_steps(
    client: RedisClient, queue: GradientQueue
) -> None:
    sender = GradientSender(client, max_staleness=1)
    queue.tell_version(5)
    assert [sender.push(GROUPS, version=version, env_steps=2).status for version in (3, 4, 5)] == ["stale", "ok", "ok"]
    assert steps_of(client) == 6
    assert sender.metrics()["gradients/refused_stale_total"] == 1
    assert queue.run_metrics()["gradients/run_refused_stale_total"] == 1


def test_gradients_that_grow_stale_while_they_wait_are_refused(client: RedisClient) -> None:
    queue = GradientQueue(client, max_staleness=1)
    sender = GradientSender(client)
    for version in (1, 2):
        sender.push(GROUPS, version=version, env_steps=1)
    queue.tell_version(3)
    gradient = queue.take(1.0)
    assert gradient is not None
    assert gradient.version == 2
    assert queue.metrics()["gradients/refused_stale_total"] == 1


def test_gradients_that_are_not_finite_are_refused_at_the_entrance(client: RedisClient, queue: GradientQueue) -> None:
    sender = GradientSender(client)
    assert sender.push(scaled(float("nan")), version=0, env_steps=3).status == "not_finite"
    assert steps_of(client) == 3
    assert queue.take(0.0) is None
    assert not keys_of(client, ":queue:")


def test_queue_is_bounded_by_bytes(client: RedisClient, queue: GradientQueue) -> None:
    sender = GradientSender(client, max_bytes=2 * SIZE, on_full="drop")
    outcomes = [sender.push(GROUPS, version=0, env_steps=1).status for _ in range(8)]
    taken = outcomes.count("ok")
    assert outcomes == ["ok"] * taken + ["full"] * (8 - taken)
    assert 2 <= taken <= 4
    assert queue.run_metrics()["gradients/waiting_bytes"] <= 2 * SIZE
    assert steps_of(client) == 8
    assert queue.take(0.0) is not None
    assert sender.push(GROUPS, version=0, env_steps=1).status == "ok"


def test_a_gradient_larger_than_the_bound_fits_into_an_empty_queue(client: RedisClient, queue: GradientQueue) -> None:
    sender = GradientSender(client, max_bytes=1, on_full="drop")
    assert [sender.push(GROUPS, version=0, env_steps=1).status for _ in range(2)] == ["ok", "full"]


def test_a_sender_waits_for_room(client: RedisClient, queue: GradientQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = GradientSender(client, max_bytes=1)
    sender.push(GROUPS, version=0, env_steps=1)
    is_waiting, has_room = threading.Event(), sender._has_room

    def look(*args: Any) -> bool:
        is_waiting.set()
        return has_room(*args)

    monkeypatch.setattr(sender, "_has_room", look)
    thread = threading.Thread(target=sender.push, args=(GROUPS,), kwargs={"version": 1, "env_steps": 1})
    thread.start()
    assert is_waiting.wait(20.0)
    versions = [gradient.version for gradient in (queue.take(20.0), queue.take(20.0)) if gradient]
    thread.join()
    assert versions == [0, 1]
    assert steps_of(client) == 2
    assert sender.metrics()["gradients/wait_s_total"] > 0


def test_a_wait_for_room_ends_in_words_and_counts_nothing(client: RedisClient) -> None:
    sender = GradientSender(client, max_bytes=1, wait_timeout_s=0.05)
    sender.push(GROUPS, version=0, env_steps=1)
    with pytest.raises(QueueFullError, match="parameter server running"):
        sender.push(GROUPS, version=0, env_steps=1)
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        sender.push(GROUPS, version=0, env_steps=1, stop=stop)
    assert steps_of(client) == 1


def push_bytes(
    client: RedisClient, data: bytes | None, head: bytes | None = None, more: dict[bytes, bytes] | None = None
) -> None:
    """Put anything into the queue, as somebody with access to Redis can."""
    keys = GradientStore(client, "default").keys
    if data is not None:
        client.redis.set(keys.block("bad-1", 0, 0), data)
    size = len(data or b"")
    head = GradientHead(0, 1, 0, 1, "bad", 1, size).encode() if head is None else head
    client.redis.xadd(keys.queue(0), {"id": "bad-1", "head": head, "steps": "1", **(more or {})})


def joined(pieces: list[memoryview]) -> bytes:
    return b"".join(pieces)


GOOD = joined(encode({"actor/b": torch.ones(4)}))


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (b"", None),
        (b"\xff" * 100, None),
        (GOOD[:-1], None),
        (GOOD + b"1", None),
        (GOOD.replace(b"F32", b"F99"), None),
        (GOOD.replace(b"[0,16]", b"[0,99]"), None),
        (joined(encode({"actor/b": torch.ones(5)})), None),
        (joined(encode({"actor/other": torch.ones(4)})), None),
        (joined(encode({"actor/b": torch.full((4,), torch.inf)})), None),
        (None, None),
        (GOOD, b"no json"),
        (GOOD, b"[1]"),
        (GOOD, GradientHead(0, 1, 0, 1, "bad", 1, 5).encode()),
        (GOOD, GradientHead(-1, 1, 0, 1, "bad", 1, len(GOOD)).encode()),
        (GOOD, GradientHead(0, 1, 0, 1, "bad", 5000, len(GOOD)).encode()),
        (GOOD, b""),
    ],
)
def test_broken_gradients_are_refused_and_the_next_one_is_taken(
    client: RedisClient, queue: GradientQueue, data: bytes | None, head: bytes | None
) -> None:
    push_bytes(client, data, head)
    GradientSender(client).push(GROUPS, version=9, env_steps=1)
    gradient = queue.take(1.0)
    assert gradient is not None
    assert gradient.version == 9
    metrics = queue.metrics()
    assert metrics["gradients/refused_broken_total"] + metrics["gradients/refused_gone_total"] == 1


def test_fields_of_any_size_in_a_queue_are_passed_over(client: RedisClient, queue: GradientQueue) -> None:
    push_bytes(client, GOOD, more={b"x" * 10_000: b"y" * 10_000})
    gradient = queue.take(1.0)
    assert gradient is not None
    assert torch.equal(gradient.tensors["actor"]["b"], torch.ones(4))


def test_what_a_sender_left_between_two_parts_expires(client: RedisClient) -> None:
    sender = GradientSender(client)
    parts = cut(encode({"actor/b": torch.ones(4)}), 50)
    channel = sender._channel
    channel.begin("claim", ["a", "b"], ["1", "2", b"3"], {sender._store.keys.staged("x", 0, 0): parts[0]})
    channel._connection.read_response()
    assert all(0 < client.redis.ttl(key) <= 60 for key in keys_of(client, ":staged:"))
    channel.close()


def test_two_servers_of_one_queue_never_get_the_same_gradient(client: RedisClient) -> None:
    queues = [GradientQueue(client) for _ in range(2)]
    sender = GradientSender(client)
    for i in range(30):
        sender.push(GROUPS, version=i, env_steps=1)
    taken: list[list[int]] = [[], []]

    def take(i: int) -> None:
        while (gradient := queues[i].take(0.2)) is not None:
            taken[i].append(gradient.version)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken[0] + taken[1]) == list(range(30))


def test_env_steps_go_on_after_redis_was_emptied(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        queue, sender = GradientQueue(client), GradientSender(client)
        queue.tell_version(4)
        sender.push(GROUPS, version=4, env_steps=100)
        assert queue.take(1.0) is not None
        client.redis.flushall()
        sender.push(GROUPS, version=4, env_steps=5)
        queue.tell_version(4)
        assert steps_of(client) == 105
        assert queue.take(1.0) is not None
        assert queue.global_step == 105
        assert sender.push(GROUPS, version=4, env_steps=1).newest_version == 4


def test_gradients_of_a_full_redis_are_dropped_and_their_steps_counted_later(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        sender = GradientSender(client, on_full="drop")
        sender.push(GROUPS, version=0, env_steps=1)
        client.redis.config_set("maxmemory", 1)
        assert [sender.push(GROUPS, version=0, env_steps=10).status for _ in range(2)] == ["full", "full"]
        client.redis.config_set("maxmemory", 0)
        assert sender.push(GROUPS, version=0, env_steps=100).global_step == 121


def test_gradients_in_a_cluster_go_where_the_env_steps_are_counted(redis_cluster: Any, run_id: str) -> None:
    with RedisClient(redis_cluster.address, run=run_id) as client:
        sender = GradientSender(client, num_replay_shards=3, part_bytes=50)
        queue = GradientQueue(client, num_replay_shards=3)
        assert sender.push(GROUPS, version=0, env_steps=7).global_step == 7
        redis_cluster.move_slot(client.shard_keys(0, 3).hash_slot, to=2)
        assert sender.push(GROUPS, version=1, env_steps=7).global_step == 14
        found = [queue.take(5.0) for _ in range(2)]
        assert [each.version for each in found if each] == [0, 1]
        client.delete_run()
