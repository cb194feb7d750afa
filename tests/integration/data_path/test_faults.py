"""Redis runs out of memory, is emptied, is killed and comes back: nothing acknowledged is lost that Redis still has."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis
from naive_replay import (
    DEADLINE_S,
    NaiveReplay,
    Walker,
    assert_same,
    contents,
    in_thread,
    pump,
    pump_until,
    tick,
    wait_until,
)

from surreal.base.errors import RedisUnavailableError, ReplayFullError
from surreal.replay.turn import let_go


@pytest.fixture
def fault_run(start_redis: Callable[..., Any], make_run: Callable[[str], Any], redis_binary: str) -> Callable[..., Any]:
    """Make a private server of each binary, and the test's run on it: (run, server)."""

    def make(**options: Any) -> tuple[Any, Any]:
        server = start_redis(binary=redis_binary, **options)
        return make_run(server.address), server

    return make


def stream_counts(run: Any) -> tuple[int, int]:
    """Entries and blocks of the run's stream."""
    client, keys = run.client.redis, run.client.shard_keys()
    pattern = keys.block_prefix.replace("{", "[{]") + "*"
    return client.xlen(keys.stream), sum(1 for _ in client.scan_iter(match=pattern, count=1000))


def fill(client: redis.Redis) -> int:
    """Fill the server up to the last few bytes; returns the number of keys."""
    keys = 0
    for size in (300_000, 10_000, 500):
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            while True:
                client.set(f"filler:{keys}", bytes(size))
                keys += 1
    return keys


def test_a_server_at_its_memory_limit_stops_the_agent_and_not_the_owner(fault_run: Callable[..., Any]) -> None:
    run, _ = fault_run(maxmemory="16mb")
    replay, sender = run.replay(), run.sender(wait_timeout_s=0.05)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 300)
    sender.flush()
    pump(replay, steps=300)
    server = run.client.redis
    fillers = fill(server)
    # What the server frees now and then is less than this, so the limit is met at each try.
    server.config_set("maxmemory", server.info("memory")["used_memory"] - 500_000)
    with pytest.raises(ReplayFullError, match="replay is full"):
        walker.walk(sender, 400)
    assert sender.outbox._asks_first
    with pytest.raises(ReplayFullError, match="replay is full"):
        sender.flush()
    assert sender.outbox._asks_first, "asking meets the limit, too, so that no chunk is sent"
    metrics = sender.metrics()
    assert stream_counts(run) == (metrics["sender/chunks_total"],) * 2, "what was refused has left nothing behind"
    tick(replay)  # the lease is renewed at the limit
    assert replay.global_step == metrics["sender/steps_total"] < len(walker.naive.transitions())
    pump(replay, steps=replay.global_step)
    replay.capacity = 100
    let_go(replay.state, replay._evict())
    assert replay.owner.num_pending
    while replay.owner.num_pending:
        replay.step(timeout_s=0.001)
    assert stream_counts(run) == (len(replay.chunks), len(replay.chunks))
    for i in range(fillers):
        server.delete(f"filler:{i}")
    walker.walk(sender, 100)
    sender.close()
    expected = walker.naive.transitions()
    pump(replay, steps=len(expected))
    kept = contents(replay)
    assert_same(kept, {name: expected[name] for name in sorted(expected)[-len(kept) :]})
    assert replay.global_step == len(expected)


@pytest.mark.parametrize("cursor", ["behind", "ahead of the clock"])
def test_an_emptied_server_is_followed_from_its_start(run: Any, cursor: str) -> None:
    sender, replay = run.sender(), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 200)
    sender.flush()
    pump(replay, steps=200)
    first_epoch = replay.epoch
    run.client.delete_run()
    if cursor != "behind":
        replay.pointer_queue.queues[0]._cursor = b"99999999999999-0"
    for _ in range(10):
        walker.walk(sender, 10)
        sender.flush()
        assert sender.global_step >= 200
    pump(replay, steps=300)
    tick(replay)
    assert replay.epoch != first_epoch
    assert replay.global_step == 300, "what the owner knew was added"
    walker.walk(sender, 10)
    sender.flush()
    assert sender.global_step == 310
    pump(replay, steps=310)
    assert_same(contents(replay), walker.naive.transitions())
    assert replay.metrics()["replay/refused_chunks_total"] == replay.metrics()["replay/gone_chunks_total"] == 0


def test_chunks_of_a_new_epoch_are_evicted_also_before_the_owner_knows_of_it(run: Any) -> None:
    sender, replay = run.sender(), run.replay(capacity=40, lease_s=1000.0)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 200)
    sender.flush()
    pump(replay, steps=200)
    while replay.owner.num_pending:
        replay.step(timeout_s=0.001)
    run.client.delete_run()
    walker.walk(sender, 200)
    sender.flush()
    pump(replay, steps=400)
    while replay.owner.num_pending:
        replay.step(timeout_s=0.001)
    assert stream_counts(run) == (len(replay.chunks), len(replay.chunks))
    steps, stored = run.client.redis.hmget(run.client.shard_keys().meta, "live_steps", "live_bytes")
    assert int(steps) == len(replay)
    assert int(stored) == sum(chunk.stored_bytes for chunk in replay.chunks)


def test_evicting_mirrored_chunks_of_an_old_epoch_removes_nothing_new(run: Any) -> None:
    """A chunk may be stored again in the new epoch under its old id, when its first answer was lost."""
    sender, replay = run.sender(chunk_steps=50), run.replay(capacity=130, lease_s=1.0)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 100)
    sender.flush()
    pump(replay, steps=100)
    client, keys = run.client.redis, run.client.shard_keys()
    entries = client.xrange(keys.stream)
    blocks = {entry[b"id"]: client.get(keys.block(entry[b"id"].decode())) for _, entry in entries}
    contract = client.hmget(keys.meta, "contract_id", "contract")
    run.client.delete_run()
    client.hset(keys.meta, mapping={"epoch": "new", "contract_id": contract[0], "contract": contract[1]})
    for entry_id, fields in entries:
        client.set(keys.block(fields[b"id"].decode()), blocks[fields[b"id"]])
        client.xadd(keys.stream, fields, id=entry_id)
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= 200)
    assert replay.metrics()["replay/evicted_chunks_total"] > 0, "of the old epoch"
    tick(replay)
    assert replay.epoch == "new"
    while replay.owner.num_pending:
        replay.step(timeout_s=0.001)
    assert stream_counts(run) == (len(entries), len(entries))


def test_scripts_are_sent_again_to_a_server_that_forgot_them(fault_run: Callable[..., Any]) -> None:
    run, _ = fault_run()
    sender, replay = run.sender(), run.replay(capacity=100)
    walker = Walker(NaiveReplay(1, 0.5))
    for turn in range(1, 5):
        walker.walk(sender, 100)
        sender.flush()
        run.client.redis.script_flush()
        pump(replay, steps=100 * turn)
        run.client.redis.script_flush()
        tick(replay)
    assert replay.global_step == 400


def test_a_server_killed_and_started_with_its_file_has_lost_nothing(fault_run: Callable[..., Any]) -> None:
    run, server = fault_run(appendonly=True)
    sender, replay = run.sender(lookahead=2), run.replay(n_step=3, client=run.make_client())
    walker = Walker(NaiveReplay(3, 0.5))
    replay.start_threads()
    walker.walk(sender, 250)  # the last chunk is under way
    server.kill()

    def work() -> None:
        walker.walk(sender, 250)
        sender.flush()

    with in_thread(work) as thread:
        thread.join(0.1)
        assert thread.is_alive(), "it waits for Redis"
        server.start()
    server.kill()
    server.start()
    sender.close()
    expected = walker.naive.transitions()
    wait_until(lambda: replay.metrics()["replay/inserted_steps_total"] >= len(expected))
    replay.stop()
    assert replay.join(DEADLINE_S)
    assert_same(contents(replay), expected)
    assert sender.global_step == sender.metrics()["sender/steps_total"] == len(expected)
    heir = run.replay(n_step=3)
    pump(heir, steps=len(expected))
    assert_same(contents(heir), expected)
    assert heir.global_step == len(expected)


def test_a_server_killed_and_started_empty_goes_on_with_what_is_mirrored(fault_run: Callable[..., Any]) -> None:
    run, server = fault_run()
    sender, replay = run.sender(), run.replay(client=run.make_client(), capacity=300, lease_s=0.4)
    walker = Walker(NaiveReplay(1, 0.5))
    replay.start_threads()
    walker.walk(sender, 200)
    sender.flush()
    wait_until(lambda: replay.metrics()["replay/inserted_steps_total"] >= 200 and replay.global_step == 200)
    server.kill()
    assert replay.dequeue(DEADLINE_S) is not None, "the learner goes on without Redis"
    server.start()
    for _ in range(20):
        walker.walk(sender, 10)
        sender.flush()
        assert sender.global_step >= 200
    sender.close()
    wait_until(lambda: replay.global_step == 400 and replay.metrics()["replay/inserted_steps_total"] >= 400)
    wait_until(lambda: not replay.owner.num_pending)
    replay.stop()
    assert replay.join(DEADLINE_S)
    expected = walker.naive.transitions()
    kept = contents(replay)
    assert 260 <= len(kept) <= 316, "old experience and new"
    assert_same(kept, {name: expected[name] for name in sorted(expected)[-len(kept) :]})
    entries, blocks = stream_counts(run)
    assert entries == blocks == sum(chunk.epoch == run_epoch(run) for chunk in replay.chunks)


def run_epoch(run: Any) -> str:
    return str(run.client.redis.hget(run.client.shard_keys().meta, "epoch").decode())


def test_a_replica_that_lost_the_last_chunks_is_read_on(fault_run: Callable[..., Any]) -> None:
    """The primary's clock was ahead: what the promoted replica stores gets ids below the replay's cursor."""
    run, _ = fault_run()
    keys, bare = run.client.shard_keys(), run.client.redis
    sender, replay = run.sender(chunk_steps=10), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 100)
    sender.flush()
    kept_id = bare.xinfo_stream(keys.stream)["last-generated-id"]
    ahead_ms = int(1000 * (time.time() + 3600))
    bare.execute_command("XSETID", keys.stream, f"{ahead_ms}-0")
    walker.walk(sender, 700)
    sender.flush()
    pump(replay, steps=800)
    before = contents(replay)
    for entry_id, fields in bare.xrange(keys.stream, f"{ahead_ms}-0"):
        bare.xdel(keys.stream, entry_id)
        bare.unlink(keys.block(fields[b"id"].decode()))
    bare.execute_command("XSETID", keys.stream, kept_id)
    walker.walk(sender, 50)
    sender.flush()
    pump(replay, steps=850)
    sender.close()
    assert_same(contents(replay), walker.naive.transitions())
    assert len(contents(replay)) == len(replay) > len(before)


def test_an_idle_agent_survives_a_restart_while_its_chunk_is_under_way(fault_run: Callable[..., Any]) -> None:
    run, server = fault_run(appendonly=True)
    sender, replay = run.sender(chunk_steps=10), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 30)
    sender.flush()
    os.kill(server.pid, signal.SIGSTOP)
    steps = 30
    while not sender.outbox._pending:
        walker.walk(sender, 1)
        steps += 1
    server.kill()

    def idle() -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while sender.outbox._pending:
            assert time.monotonic() < deadline_s
            sender.flush_due()
            time.sleep(0.005)

    with in_thread(idle) as thread:
        thread.join(0.1)
        assert thread.is_alive(), "it waits for Redis"
        server.start()
    sender.close()
    pump(replay, steps=steps)
    assert_same(contents(replay), walker.naive.transitions())


def test_without_redis_the_sender_gives_up_in_time_and_keeps_its_chunks(start_redis: Any, make_run: Any) -> None:
    server = start_redis()
    run = make_run(server.address)
    sender, replay = run.sender(wait_timeout_s=0.1), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 40)
    sender.flush()
    server.kill()
    with pytest.raises(RedisUnavailableError, match=r"redis\.sock did not answer"):
        walker.walk(sender, 100)
    server.start()
    walker.walk(sender, 10)
    sender.close()
    expected = walker.naive.transitions()
    replay.owner.claim()
    assert replay.global_step >= len(expected) - 40
    pump(replay, steps=len(expected) - 40)  # the first 40 were in a server without a file
    assert set(contents(replay)) == set(sorted(expected)[40:])
    assert np.isfinite(sender.metrics()["sender/wait_s_total"])


def test_a_sender_closed_without_redis_says_what_it_dropped(start_redis: Any, make_run: Any) -> None:
    server = start_redis()
    sender = make_run(server.address).sender()
    Walker(NaiveReplay(1, 0.5)).walk(sender, 40)
    server.kill()
    assert not sender.close(timeout_s=0.05)
    metrics = sender.metrics()
    assert metrics["sender/steps_total"] + metrics["sender/dropped_steps_total"] == 40
