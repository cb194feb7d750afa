"""Flow control: a full stream, the samples-per-insert limiter, eviction, and who owns the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from naive_replay import NaiveReplay, Walker, assert_same, contents, pump, pump_until, wait_until

from surreal.errors import LeaseError, ReplayFullError, StoppedError, ThreadFailedError


@contextmanager
def in_thread(work: Any, *args: Any) -> Iterator[threading.Thread]:
    """Run something beside the test; what it raises is raised here."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    yield thread
    thread.join(20)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def live(run: Any) -> tuple[int, int, int, int]:
    """Entries, blocks, and the live counters of the run's stream."""
    client, keys = run.client.redis, run.client.shard_keys()
    blocks = sum(1 for _ in client.scan_iter(match=keys.block_prefix.replace("{", "[{]") + "*", count=1000))
    steps, stored = client.hmget(keys.meta, "live_steps", "live_bytes")
    return client.xlen(keys.stream), blocks, int(steps or 0), int(stored or 0)


def assert_consistent(run: Any, replay: Any) -> None:
    """The stream holds exactly the chunks that the replay holds."""
    chunks = replay._chunks
    expected = (len(chunks), len(chunks), sum(c.steps for c in chunks), sum(c.stored_bytes for c in chunks))
    assert live(run) == expected
    assert len(replay) == expected[2]


def settle(replay: Any) -> None:
    """Turn until what was evicted is gone from Redis too."""
    while replay.owner._pending:
        replay.step(timeout_s=0.001)


# -- a full stream -----------------------------------------------------------------------------------------------------


def test_a_full_stream_refuses_after_the_allowed_wait_and_loses_nothing(run: Any) -> None:
    sender = run.sender(max_stream_bytes=20_000, wait_timeout_s=0.05)
    walker = Walker(NaiveReplay(1, 0.5))
    with pytest.raises(ReplayFullError, match=r"replay is full; is a learner running") as caught:
        walker.walk(sender, 2000)
    assert caught.value.waited_s == 0.05
    assert live(run)[3] <= 20_000
    assert sender.metrics()["sender/waits"] >= 1
    assert sender.metrics()["sender/wait_s"] >= 0.05
    replay = run.replay(max_bytes=1 << 20)
    replay.step(timeout_s=0)  # claims the stream, and sets a larger bound
    sender.flush()
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps"] >= sender.metrics()["sender/steps"])
    expected = walker.naive.transitions()
    last = max(expected)
    # The last step is recorded too: the error came after it.
    assert_same(contents(replay), expected)
    assert last in contents(replay)


def test_a_sender_waits_while_the_stream_is_full_and_goes_on_when_chunks_are_evicted(run: Any) -> None:
    replay = run.replay(capacity=200, max_bytes=20_000)
    replay.step(timeout_s=0)
    sender = run.sender(client=run.make_client())
    walker = Walker(NaiveReplay(1, 0.5))

    def work() -> None:
        walker.walk(sender, 3000)
        sender.flush()

    with in_thread(work) as thread:
        wait_until(lambda: sender.metrics()["sender/waits"] >= 1)
        pump_until(replay, lambda: not thread.is_alive())
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps"] >= 3000)
    settle(replay)
    assert_consistent(run, replay)
    assert sender.metrics()["sender/dropped_chunks"] == 0
    assert replay.global_step == 3000
    expected = walker.naive.transitions()
    kept = contents(replay)
    assert sorted(kept) == sorted(expected)[-len(kept) :]


def test_a_sender_that_drops_never_waits_and_counts_what_it_dropped(run: Any) -> None:
    sender = run.sender(on_full="drop", max_stream_bytes=20_000)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 2000)
    sender.flush()
    metrics = sender.metrics()
    assert metrics["sender/waits"] == 0
    assert metrics["sender/dropped_steps"] > 0
    assert metrics["sender/steps"] + metrics["sender/dropped_steps"] == 2000
    entries, _, steps, _ = live(run)
    assert (entries, steps) == (metrics["sender/chunks"], metrics["sender/steps"])


def test_a_sender_that_waits_ends_with_its_stop_event(run: Any) -> None:
    stop = threading.Event()
    sender = run.sender(max_stream_bytes=3000, wait_timeout_s=60, stop=stop)
    with in_thread(lambda: wait_until(lambda: sender.metrics()["sender/waits"] >= 1) or stop.set()):
        with pytest.raises(StoppedError):
            Walker(NaiveReplay(1, 0.5)).walk(sender, 2000)
    assert not sender.close(timeout_s=0.01), "there is no room, so the rest is dropped"
    assert sender.metrics()["sender/dropped_steps"] > 0


def test_a_chunk_that_is_old_leaves_without_further_steps(run: Any) -> None:
    sender = run.sender(chunk_steps=1000, max_delay_s=0.02)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 2)
    deadline_s = time.monotonic() + 10
    while sender.metrics()["sender/steps"] < 2:
        assert time.monotonic() < deadline_s
        sender.flush_due()
        time.sleep(0.002)
    chunks = sender.metrics()["sender/chunks"]
    for _ in range(5):
        sender.flush_due()  # with nothing new there is nothing to send
    assert sender.metrics()["sender/chunks"] == chunks


def test_taking_an_answer_does_not_cut_a_small_chunk(run: Any) -> None:
    sender = run.sender(chunk_steps=10)
    walker = Walker(NaiveReplay(1, 0.5))
    for _ in range(200):
        walker.walk(sender, 1)
        sender.flush_due()
    sender.flush()
    assert sender.metrics()["sender/chunks"] <= 200 / 10 * 1.5


# -- eviction ----------------------------------------------------------------------------------------------------------


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
    assert replay.metrics()["replay/evicted_chunks"] > 0
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
            pump_until(replay, lambda: len(replay.pointer_queue) == 0)


# -- the limiter -------------------------------------------------------------------------------------------------------


def test_a_limited_agent_needs_a_learner(run: Any) -> None:
    sender = run.sender(is_limited=True, wait_timeout_s=0.05)
    walker = Walker(NaiveReplay(1, 0.5))
    with pytest.raises(ReplayFullError, match="limiter gives no credit; is the learner running"):
        walker.walk(sender, 40)
    assert live(run)[0] == 0
    replay = run.replay(samples_per_insert=1.0, start_size=100, samples_per_insert_tolerance=50)
    replay.step(timeout_s=0)
    sender.flush()
    assert sender.metrics()["sender/steps"] == len(walker.naive.transitions())


def test_agents_and_learner_hold_each_other_to_the_ratio(run: Any) -> None:
    ratio, start_size, tolerance, steps = 2.0, 60, 60.0, 3000
    replay = run.replay(
        samples_per_insert=ratio, start_size=start_size, samples_per_insert_tolerance=tolerance, capacity=500
    )
    sender = run.sender(client=run.make_client(), chunk_steps=8, is_limited=True)

    def work() -> None:
        Walker(NaiveReplay(1, 0.5)).walk(sender, steps)
        sender.flush()

    replay.step(timeout_s=0)
    with in_thread(work) as thread:
        # The learner takes nothing: the agent must stop at its credit, 60 + 60 / 2 steps and what two batches drawn add.
        wait_until(lambda: sender.metrics()["sender/waits"] >= 1)
        replay.start_threads()
        wait_until(lambda: replay.num_samples >= 8)
        time.sleep(0.05)
        assert sender.metrics()["sender/steps"] <= start_size + (replay.num_samples + tolerance) / ratio
        while thread.is_alive() or replay.metrics()["replay/inserted_steps"] < steps:
            replay.dequeue(timeout_s=0.05)
            inserted, drawn = sender.metrics()["sender/steps"], replay.num_samples
            assert drawn <= ratio * (steps - start_size) + tolerance
            assert drawn >= ratio * (inserted - start_size) - tolerance
    # The agent has ended, so the learner is held at the upper edge.
    while replay.dequeue(timeout_s=0.2) is not None:
        pass
    upper = ratio * (steps - start_size) + tolerance
    assert upper - replay.batch_size < replay.num_samples <= upper
    assert replay.metrics()["replay/limiter_wait_s"] >= 0
    assert sender.metrics()["sender/waits"] >= 1
    assert replay.metrics()["replay/samples_per_insert"] == pytest.approx(ratio, abs=tolerance / (steps - start_size))


def test_a_learner_that_returns_goes_on_counting(run: Any) -> None:
    options = {"samples_per_insert": 1.0, "start_size": 20, "samples_per_insert_tolerance": 40, "batch_size": 8}
    first, sender = run.replay(**options), run.sender()
    Walker(NaiveReplay(1, 0.5)).walk(sender, 100)
    sender.flush()
    pump(first, steps=100)
    while first.dequeue(timeout_s=0.01) is not None:
        first.step(timeout_s=0)
    drawn = first.num_samples
    assert 120 - 8 < drawn <= 120
    first.stop()
    first.join()
    second = run.replay(**options)
    pump(second, steps=100)
    assert second.num_samples == drawn
    assert second.dequeue(timeout_s=0.01) is None, "it is at the upper edge, where the first one was"


def test_a_checkpoint_on_an_empty_server_fills_its_replay_again(run: Any) -> None:
    """The counts of a long run, and an empty stream: without care the agents' credit would end below start_size."""
    replay = run.replay(samples_per_insert=4.0, start_size=500, samples_per_insert_tolerance=100, batch_size=8)
    replay.load_state_dict({"samples": 400_000, "global_step": 100_500})
    sender = run.sender(client=run.make_client(), is_limited=True)
    walker = Walker(NaiveReplay(1, 0.5))
    replay.step(timeout_s=0)

    def work() -> None:
        walker.walk(sender, 900)
        sender.flush()

    with in_thread(work) as thread:
        while thread.is_alive():
            pump_until(replay, lambda: not thread.is_alive() or len(replay.fetcher_queue) > 0)
            while replay.dequeue(timeout_s=0) is not None:
                pass
    assert replay.global_step == 101_400
    fresh = replay.num_samples - 400_000
    assert 4.0 * (900 - 500) - 100 <= fresh <= 4.0 * (900 - 500) + 100


# -- the lease ---------------------------------------------------------------------------------------------------------


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
    assert first.join()
    second = run.replay(lease_s=0.1)
    second.step(timeout_s=0)
    assert second.epoch == first.client.redis.hget(run.client.shard_keys().meta, "epoch").decode()


def test_the_lease_of_an_owner_who_died_is_taken_when_it_ends(run: Any) -> None:
    dead = run.replay(lease_s=0.2)
    dead.step(timeout_s=0)
    heir = run.replay(lease_s=5.0)
    heir.step(timeout_s=0)
    assert heir.owner.is_owner
    time.sleep(0.1)  # past the dead one's own interval of renewal
    with pytest.raises(LeaseError, match="took over"):
        dead.step(timeout_s=0)


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
    assert replay.join()


def test_impossible_settings_are_refused(run: Any) -> None:
    for wrong in (
        {"batch_size": 0}, {"n_step": 0}, {"prefetch": 0}, {"gamma": 1.5}, {"start_size": 11, "capacity": 10},
        {"start_size": 0}, {"samples_per_insert": 8.0, "samples_per_insert_tolerance": 10.0}, {"samples_per_insert": 0.0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be|it must"):
            run.replay(**wrong)
    assert np.isfinite(run.replay().metrics()["replay/fill"])
