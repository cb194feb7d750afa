"""The owner of a stream: what it evicts, and its lease."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from naive_replay import (
    DEADLINE_S,
    NaiveReplay,
    Walker,
    assert_consistent,
    assert_same,
    contents,
    in_thread,
    live,
    pump,
    settle,
    tick,
    wait_until,
)

from surreal.base.errors import LeaseError, ThreadFailedError
from surreal.distributed.connection.holders import make_token


def token_of(**changes: Any) -> str:
    """The token of another process."""
    return json.dumps(json.loads(make_token(60.0)) | changes)


@pytest.mark.parametrize("bound", ["transitions", "bytes"])
def test_eviction_leaves_the_newest_chunks_and_right_counters(run: Any, bound: str) -> None:
    options = {"capacity": 100} if bound == "transitions" else {"max_bytes": 15_000}
    replay, sender = run.replay(**options), run.sender()
    walker = Walker(NaiveReplay(1, 0.5))
    for turn in range(1, 21):
        walker.walk(sender, 50)
        sender.flush()
        pump(replay, steps=50 * turn)
        settle(replay)
        assert_consistent(run, replay)
        if bound == "transitions":
            assert len(replay) <= 100
        else:
            assert live(run)[3] <= 15_000
    assert len(replay) > 60
    assert replay.metrics()["replay/evicted_chunks_total"] > 0
    expected = walker.naive.transitions()
    kept = contents(replay)
    assert_same(kept, {name: expected[name] for name in sorted(expected)[-len(kept) :]})


@pytest.mark.parametrize(("capacity", "start_size", "chunk_steps"), [(50, 50, 16), (10, 5, 64), (100, 90, 64)])
def test_eviction_never_leaves_less_than_the_first_batch_needs(
    run: Any, capacity: int, start_size: int, chunk_steps: int
) -> None:
    """Chunks go as a whole: with large ones and a small capacity, sampling must still begin."""
    replay = run.replay(capacity=capacity, start_size=start_size)
    sender = run.sender(chunk_steps=chunk_steps)
    Walker(NaiveReplay(1, 0.5)).walk(sender, 400)
    sender.close()
    pump(replay, steps=400)
    assert replay.start_sample_condition()
    assert len(replay) < max(capacity, start_size) + chunk_steps


def test_old_experience_leaves_by_itself_down_to_start_size(run: Any) -> None:
    replay, sender = run.replay(max_age_s=500.0, start_size=50), run.sender(chunk_steps=20)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 300)
    sender.flush()
    pump(replay, steps=len(walker.naive.transitions()))
    assert_same(contents(replay), walker.naive.transitions())
    replay.state.ages._ahead_s[0] += 1000.0  # as if so much time had passed
    replay.step(timeout_s=0)
    assert 50 <= len(replay) < 50 + 20
    kept = contents(replay)
    assert_same(kept, {name: walker.naive.transitions()[name] for name in kept})
    settle(replay)
    tick(replay)
    assert_consistent(run, replay)
    assert live(run)[2] == len(replay)


def test_a_byte_bound_that_cannot_hold_the_first_batch_is_an_error_not_a_silence(run: Any) -> None:
    replay, sender = run.replay(max_bytes=5_000, start_size=5_000), run.sender()
    walker = Walker(NaiveReplay(1, 0.5))
    replay.step(timeout_s=0)
    walker.walk(sender, 40)
    sender.flush()
    with pytest.raises(ValueError, match=r"max_bytes .* start_size"):
        for _ in range(50):
            walker.walk(sender, 8)
            sender.flush()
            replay.pointer_queue.enqueue_step()
            replay.step(timeout_s=0)


def test_a_second_owner_is_refused(run: Any) -> None:
    first = run.replay(lease_s=30.0)
    first.step(timeout_s=0)
    second = run.replay(lease_s=0.1)
    with pytest.raises(LeaseError, match=run.run_id):
        second.step(timeout_s=0)
    first.step(timeout_s=0)


def test_a_lease_that_was_given_back_is_taken_at_once(run: Any) -> None:
    first = run.replay(lease_s=1000.0)
    first.step(timeout_s=0)
    first.stop()
    assert first.join(DEADLINE_S)
    second = run.replay(lease_s=0.1)
    second.step(timeout_s=0)
    assert second.epoch == run.client.redis.hget(run.client.shard_keys().meta, "epoch").decode()


def test_the_lease_of_an_owner_who_died_is_taken_when_it_ends(run: Any) -> None:
    dead = run.replay(lease_s=0.2)
    dead.step(timeout_s=0)
    heir = run.replay(lease_s=60.0)
    heir.step(timeout_s=0)
    assert heir.owner.is_owner
    with pytest.raises(LeaseError, match="took over"):
        tick(dead)


@pytest.mark.parametrize("changes", [{"began": 1}, {"machine": "another", "lease_s": 0.05}], ids=["gone", "silent"])
def test_a_lease_that_redis_would_keep_for_an_hour_is_void_when_its_holder_is(run: Any, changes: Any) -> None:
    """Redis' clock was set back while the owner was down."""
    run.client.redis.set(run.client.shard_keys().lease, token_of(**changes), px=3_609_000)
    heir = run.replay(lease_s=60.0)
    heir.step(timeout_s=0)
    assert heir.owner.is_owner


def test_a_replay_whose_thread_hangs_keeps_its_lease(run: Any) -> None:
    """It may go on at any moment; without a lease it would take one again."""
    replay, begun, go_on = run.replay(lease_s=60.0), threading.Event(), threading.Event()
    replay.step(timeout_s=0)
    replay.supervisor.spawn("hung", lambda: (begun.set(), go_on.wait(DEADLINE_S)))
    assert begun.wait(DEADLINE_S)
    replay.stop()
    assert not replay.join(0.01)
    assert replay.owner.is_owner
    go_on.set()
    assert replay.join(DEADLINE_S)
    assert not replay.owner.is_owner


def test_a_lease_is_not_given_up_for_a_delay_after_the_question(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is suspended between Redis' answer and its clock has still asked only once."""
    dead = run.replay(lease_s=0.3)
    dead.step(timeout_s=0)
    heir = run.replay(lease_s=0.1)
    owner, real, late_s = heir.owner.owners[0], time.monotonic, 0.0
    ask = owner.tick

    def suspended(**options: Any) -> Any:
        nonlocal late_s
        state, late_s = ask(**options), 100.0 if late_s == 0.0 else 101.0
        return state

    monkeypatch.setattr(owner, "tick", suspended)
    monkeypatch.setattr("surreal.replay.stream.keeper.time.monotonic", lambda: real() + late_s)
    with pytest.raises(LeaseError, match=run.run_id):  # the second time it asks, it has waited for long
        heir.owner.claim()
    assert late_s == 101.0


def test_an_owner_that_was_taken_for_dead_removes_nothing(run: Any) -> None:
    sender = run.sender()
    Walker(NaiveReplay(1, 0.5)).walk(sender, 100)
    sender.flush()
    stale = run.replay(capacity=16)
    stale.step(timeout_s=0)
    run.client.redis.set(run.client.shard_keys().lease, "another")
    before = live(run)
    with pytest.raises(LeaseError):
        for _ in range(100):
            stale.pointer_queue.enqueue_step()
            stale.step(timeout_s=0.01)
    assert live(run) == before


def test_threads_end_with_the_reason_when_another_owner_takes_over(run: Any) -> None:
    replay = run.replay(lease_s=0.1)
    replay.start_threads()
    wait_until(lambda: replay.owner.is_owner)
    run.client.redis.set(run.client.shard_keys().lease, "another")
    with pytest.raises(ThreadFailedError, match="took over"):
        for _ in replay.batch_iterator():
            pass


def test_a_replay_is_stopped_while_it_waits(run: Any) -> None:
    replay = run.replay(start_size=10)
    replay.start_threads()
    with in_thread(lambda: [wait_until(lambda: replay.owner.is_owner), replay.stop()]):
        assert list(replay.batch_iterator()) == []
    assert replay.join(DEADLINE_S)


def test_impossible_settings_are_refused(run: Any) -> None:
    for wrong in (
        {"batch_size": 0},
        {"n_step": 0},
        {"prefetch": 0},
        {"gamma": 1.5},
        {"start_size": 0},
        {"start_size": 11, "capacity": 10},
        {"samples_per_insert": 0.0},
        {"samples_per_insert": 8.0, "samples_per_insert_tolerance": 10.0},
    ):
        with pytest.raises(ValueError, match=r"must be|it must"):
            run.replay(**wrong)
    assert np.isfinite(run.replay().metrics()["replay/fill_ratio"])
