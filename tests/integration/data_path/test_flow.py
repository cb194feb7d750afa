"""Flow control: a full stream, and the samples-per-insert limiter."""

from __future__ import annotations

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
    pump_until,
    settle,
    tick,
    wait_until,
)

from surreal.base.errors import ReplayFullError, StoppedError
from surreal.base.specs import ObsSpec
from surreal.base.system.logs import WAITS
from surreal.base.types import Action, StepBatch, StepKind


def test_a_full_stream_refuses_after_the_allowed_wait_and_loses_nothing(run: Any) -> None:
    sender = run.sender(max_stream_bytes=20_000, wait_timeout_s=0.05)
    walker = Walker(NaiveReplay(1, 0.5))
    with pytest.raises(ReplayFullError, match=r"replay is full; is a learner running") as caught:
        walker.walk(sender, 2000)
    assert caught.value.waited_s == 0.05
    assert live(run)[3] <= 20_000
    assert sender.metrics()["sender/waits_total"] >= 1
    assert sender.metrics()["sender/wait_s_total"] > 0
    replay = run.replay(max_bytes=1 << 20)
    replay.step(timeout_s=0)  # claims the stream, and sets a larger bound
    sender.flush()
    pump_until(
        replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= sender.metrics()["sender/steps_total"]
    )
    expected = walker.naive.transitions()
    last = max(expected)
    # The last step is recorded too: the error came after it.
    assert_same(contents(replay), expected)
    assert last in contents(replay)


@pytest.mark.parametrize("room_bytes", [8_000, 100])
def test_a_sender_waits_while_the_stream_is_full_and_goes_on_when_chunks_are_evicted(
    run: Any, room_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.replay.stream.owner.ROOM_BYTES", room_bytes)
    replay = run.replay(max_bytes=20_000)
    replay.step(timeout_s=0)
    sender = run.sender(client=run.make_client(), chunk_steps=100)
    walker = Walker(NaiveReplay(1, 0.5))

    def work() -> None:
        walker.walk(sender, 1500)
        sender.flush()

    with in_thread(work) as thread:
        wait_until(lambda: sender.metrics()["sender/wait_s_total"] > 0)  # it shows while it lasts
        replay.start_threads()
        wait_until(lambda: not thread.is_alive())
    wait_until(lambda: replay.metrics()["replay/inserted_steps_total"] >= 1500)
    replay.stop()
    assert replay.join(DEADLINE_S)
    settle(replay)
    tick(replay)
    assert_consistent(run, replay)
    assert sender.metrics()["sender/dropped_chunks_total"] == 0
    assert replay.global_step == 1500
    expected = walker.naive.transitions()
    kept = contents(replay)
    assert sorted(kept) == sorted(expected)[-len(kept) :]


def test_a_sender_that_drops_never_waits_and_counts_what_it_dropped(run: Any) -> None:
    sender = run.sender(on_full="drop", max_stream_bytes=20_000)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 2000)
    sender.flush()
    metrics = sender.metrics()
    assert metrics["sender/waits_total"] == 0
    assert metrics["sender/dropped_steps_total"] > 0
    assert metrics["sender/steps_total"] + metrics["sender/dropped_steps_total"] == 2000
    entries, _, steps, _ = live(run)
    assert (entries, steps) == (metrics["sender/chunks_total"], metrics["sender/steps_total"])


def test_a_sender_that_waits_ends_with_its_stop_event(run: Any) -> None:
    stop = threading.Event()
    sender = run.sender(max_stream_bytes=3000, wait_timeout_s=60, stop=stop)

    def stop_it() -> None:
        wait_until(lambda: sender.metrics()["sender/waits_total"] >= 1)
        stop.set()

    with in_thread(stop_it), pytest.raises(StoppedError):
        Walker(NaiveReplay(1, 0.5)).walk(sender, 2000)
    assert not sender.close(timeout_s=0.01), "there is no room, so the rest is dropped"
    assert sender.metrics()["sender/dropped_steps_total"] > 0


def test_a_chunk_that_is_old_leaves_without_further_steps(run: Any) -> None:
    sender = run.sender(chunk_steps=1000, max_delay_s=0.02)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 2)
    deadline_s = time.monotonic() + DEADLINE_S
    while sender.metrics()["sender/steps_total"] < 2:
        assert time.monotonic() < deadline_s
        sender.flush_due()
        time.sleep(0.002)
    chunks = sender.metrics()["sender/chunks_total"]
    for _ in range(5):
        sender.flush_due()  # with nothing new there is nothing to send
    assert sender.metrics()["sender/chunks_total"] == chunks


def test_taking_an_answer_does_not_cut_a_small_chunk(run: Any) -> None:
    sender = run.sender(chunk_steps=10)
    walker = Walker(NaiveReplay(1, 0.5))
    for _ in range(200):
        walker.walk(sender, 1)
        sender.flush_due()
    sender.flush()
    assert sender.metrics()["sender/chunks_total"] <= 200 / 10 * 1.5


def test_a_limited_agent_needs_a_learner(run: Any) -> None:
    sender = run.sender(is_limited=True, wait_timeout_s=0.05)
    walker = Walker(NaiveReplay(1, 0.5))
    with pytest.raises(ReplayFullError, match="limiter gives no credit; is the learner running"):
        walker.walk(sender, 40)
    assert live(run)[0] == 0
    replay = run.replay(samples_per_insert=1.0, start_size=100, samples_per_insert_tolerance=50, lease_s=60.0)
    replay.step(timeout_s=0)
    sender.flush()
    assert sender.metrics()["sender/steps_total"] == len(walker.naive.transitions())


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"is_limited": True}, "gives no credit; is the learner running?"), ({"max_stream_bytes": 1}, "is full")],
)
def test_a_sender_that_waits_says_for_what_once(
    run: Any,
    options: dict[str, Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.05)
    sender = run.sender(wait_timeout_s=0.3, **options)
    with pytest.raises(ReplayFullError):
        Walker(NaiveReplay(1, 0.5)).walk(sender, 40)
    with pytest.raises(ReplayFullError):
        sender.flush()
    (message,) = [message for message in caplog.messages if message.startswith("waiting")]
    assert message.startswith("waiting to send experience, at most 0 s: ")
    assert reason in message


def test_a_learner_that_waits_says_how_full_the_replay_is(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.0)
    replay, sender, walker = run.replay(start_size=1000), run.sender(), Walker(NaiveReplay(1, 0.5))
    replay.start_threads()
    for _ in range(2):
        walker.walk(sender, 100)
        sender.flush()
        text = f"filling the replay, {len(walker.naive.transitions())}/1000"
        wait_until(lambda text=text: (replay.dequeue(timeout_s=0.01), text in WAITS.texts())[-1])
    walker.walk(sender, 1000)
    sender.flush()
    wait_until(lambda: replay.dequeue(timeout_s=0.05) is not None)
    assert not [text for text in WAITS.texts() if "filling" in text]


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
        # The learner takes nothing: the agent must stop at its credit, and what the batches drawn ahead add to it.
        wait_until(lambda: sender.metrics()["sender/wait_s_total"] > 0)  # it shows while it lasts
        replay.start_threads()
        wait_until(lambda: replay.num_samples >= 8)
        assert sender.metrics()["sender/steps_total"] <= start_size + (replay.num_samples + tolerance) / ratio
        while thread.is_alive() or replay.metrics()["replay/inserted_steps_total"] < steps:
            replay.dequeue(timeout_s=0.05)
            inserted, drawn = sender.metrics()["sender/steps_total"], replay.num_samples
            assert drawn <= ratio * (steps - start_size) + tolerance
            assert drawn >= ratio * (inserted - start_size) - tolerance
    # The agent has ended, so the learner is held at the upper edge.
    upper = ratio * (steps - start_size) + tolerance
    wait_until(lambda: (replay.dequeue(timeout_s=0.05), replay.num_samples > upper - replay.batch_size)[-1])
    assert replay.num_samples <= upper
    assert replay.metrics()["replay/limiter_wait_s_total"] >= 0
    assert sender.metrics()["sender/waits_total"] >= 1
    wait_until(lambda: replay.global_step == steps)  # as its owner knows: the last chunk may not be counted yet
    allowed = tolerance / (steps - start_size) + 1e-9
    assert replay.metrics()["replay/samples_per_insert"] == pytest.approx(ratio, abs=allowed)


@pytest.mark.parametrize("counted", ["before they are read", "after they are read"])
def test_the_band_begins_where_it_should_whichever_comes_first(run: Any, counted: str) -> None:
    """Steps are counted by one thread's call and read by another's; in between the replay may find that it begins."""
    replay, sender = run.replay(samples_per_insert=1.0, start_size=100), run.sender()
    replay.load_state_dict({"samples": 5000, "global_step": 7000})
    replay.owner.claim()
    if counted == "before they are read":
        replay.pointer_queue.enqueue_step()  # finds an empty stream
    Walker(NaiveReplay(1, 0.5)).walk(sender, 60)
    sender.flush()
    if counted == "before they are read":
        replay.owner.owners[0].last_tick_s = 0.0
        replay.owner.renew()
        replay.step(timeout_s=0)
        assert (len(replay), replay.global_step) == (0, 7060)
    else:
        replay.pointer_queue.enqueue_step()
        replay.step(timeout_s=0)
        assert len(replay) == 60
    assert replay.state.has_begun
    assert replay.owner._limits.base_steps == 7000
    pump(replay, steps=60)
    tick(replay)
    assert replay.owner._limits.base_steps == 7000


def test_an_agent_that_has_done_its_steps_does_not_wait_for_a_learner_that_has_left(run: Any) -> None:
    """The learner of a program without a launcher ends as soon as it sees the last chunk."""
    replay = run.replay(samples_per_insert=1.0, start_size=8, samples_per_insert_tolerance=4, batch_size=2)
    sender = run.sender(client=run.make_client(), is_limited=True, chunk_steps=10, wait_timeout_s=0.1)
    walker = Walker(NaiveReplay(1, 0.5))
    replay.step(timeout_s=0)  # claims the stream, and gives credit for one chunk
    walker.walk(sender, 10)
    wait_until(lambda: (replay.owner.refresh(), replay.global_step >= 5)[-1])
    replay.owner.release()
    steps = 0
    while sender.global_step < 5:
        walker.walk(sender, 1)
        steps += 1
    assert steps < 5  # a chunk has ten
    with pytest.raises(ReplayFullError, match="no credit"):
        walker.walk(sender, 10)
        sender.flush()


def test_credit_that_rose_just_after_a_tick_is_told_soon_after_it(run: Any) -> None:
    """Even if the learner then samples nothing for a while: agents would wait for the lease's renewal."""
    replay = run.replay(samples_per_insert=1.0, start_size=100)
    replay.owner.claim()
    (owner,) = replay.owner.owners
    told = owner.credit_steps
    replay.owner.samples += 50
    owner.last_tick_s = time.monotonic() + 10  # a tick is not due
    replay.owner.renew()
    assert owner.credit_steps == told
    owner.last_tick_s = time.monotonic() - 0.1
    replay.owner.renew()
    assert owner.credit_steps == told + 50


def test_a_band_that_cannot_hold_a_chunk_is_widened(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As of an agent that joins with larger chunks than the learner's configuration has: nobody may wait for ever."""
    replay = run.replay(samples_per_insert=1.0, start_size=10, samples_per_insert_tolerance=20, batch_size=8)
    sender = run.sender(client=run.make_client(), is_limited=True, chunk_steps=100)
    replay.start_threads()

    def act() -> None:
        Walker(NaiveReplay(1, 0.5)).walk(sender, 400)
        sender.flush()

    with in_thread(act) as thread:
        while thread.is_alive():
            replay.dequeue(timeout_s=0.05)
    wait_until(lambda: replay.global_step == 400)
    tolerance = replay.owner._limits.limiter.tolerance
    assert 160 < tolerance <= 202, "twice the first chunk, and no more for those after it"
    assert abs(replay.num_samples - (400 - 10)) <= tolerance
    assert caplog.text.count("too large for a samples_per_insert_tolerance of 20") == 1


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
    replay.start_threads()

    def work() -> None:
        walker.walk(sender, 900)
        sender.flush()

    with in_thread(work) as thread:
        while thread.is_alive():
            replay.dequeue(timeout_s=0.05)
    replay.stop()
    assert replay.join(DEADLINE_S)
    replay.owner.claim()
    assert replay.global_step == 101_400
    fresh = replay.num_samples - 400_000
    assert 4.0 * (900 - 500) - 100 <= fresh <= 4.0 * (900 - 500) + 100


@pytest.mark.parametrize("stack", [1, 4])
def test_chunks_leave_before_they_are_larger_than_they_may_be(run: Any, stack: int) -> None:
    largest = 100_000  # with less, the rows would leave in several chunks
    sender = run.sender(chunk_steps=100_000, chunk_max_bytes=largest, frame_stack=stack, lookahead=2)
    obs_spec = ObsSpec.from_obs(np.zeros((stack, 8, 8) if stack > 1 else (8, 8), np.float32))
    rng = np.random.default_rng(0)
    obs, kind = np.zeros((16, *obs_spec.leaves[0].shape), np.float32), np.zeros(8, np.uint8)
    for _ in range(1000):
        ended = np.flatnonzero((kind != StepKind.FIRST) & (rng.random(8) < 0.02))
        is_last = np.arange(len(ended) + 8) < len(ended)
        now = np.where(np.isin(np.arange(8), ended), StepKind.FIRST, kind)
        kinds = np.concatenate([np.full(len(ended), StepKind.LAST), now]).astype(np.uint8)
        yes = np.ones(len(kinds), np.bool_)
        batch = StepBatch(
            kinds, np.concatenate([ended, np.arange(8)]), obs[: len(kinds)], np.zeros(len(kinds), np.float32), is_last,
            ~yes, yes, yes, len(ended), {}, np.zeros(0, np.int64),
        )  # fmt: skip
        sender.send_batch(batch, Action(np.zeros(8, np.int64), {}, 0))
        kind = np.full(8, StepKind.MID, np.uint8)
    assert sender.close()
    redis = run.client.redis
    sizes = [redis.strlen(key) for key in redis.scan_iter(match=f"*{run.run_id}*block*")]
    assert max(sizes) <= largest
    assert sum(size < 0.85 * largest for size in sizes) <= 1, "only the last one is not full"


def commands_and_bytes(run: Any) -> tuple[dict[str, int], int]:
    """Calls of each command so far, and the bytes that came in and went out."""
    redis = run.client.redis
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in redis.info("commandstats").items()}
    stats = redis.info("stats")
    return calls, stats["total_net_input_bytes"] + stats["total_net_output_bytes"]


@pytest.mark.parametrize("options", [{"max_stream_bytes": 500_000}, {"is_limited": True}])
def test_a_sender_that_waits_asks_for_room_without_sending_its_chunk(
    run: Any, start_redis: Any, make_run: Any, options: dict[str, Any]
) -> None:
    run = make_run(start_redis().address)
    sender = run.sender(client=run.make_client(), chunk_steps=1000, **options)
    replay = run.replay(samples_per_insert=1000.0, samples_per_insert_tolerance=1e7, lease_s=60.0)
    asked = 12
    rows = np.zeros((1000, 100), np.float32)  # chunks of 400 kB
    yes = np.ones(1000, np.bool_)
    batch = StepBatch(
        np.full(1000, StepKind.MID, np.uint8), np.arange(1000), rows, np.zeros(1000, np.float32), ~yes, ~yes, yes, yes,
        0, {}, np.zeros(0, np.int64),
    )  # fmt: skip

    def work() -> None:
        for _ in range(5):
            sender.send_batch(batch, Action(np.zeros(1000, np.int64), {}, 0))
        sender.flush()

    with in_thread(work) as thread:
        wait_until(lambda: sender.metrics()["sender/wait_s_total"] > 0)
        before, bytes_before = commands_and_bytes(run)
        wait_until(lambda: commands_and_bytes(run)[0]["evalsha"] - before["evalsha"] >= asked)
        after, bytes_after = commands_and_bytes(run)
        assert thread.is_alive()
        assert after.get("setex", 0) == before.get("setex", 0), "no chunk is sent while there is no room for it"
        polls = after["info"] - before["info"]
        assert bytes_after - bytes_before < 400_000 + polls * 20_000
        replay.step(timeout_s=0)  # sets a larger bound, and gives credit
        wait_until(lambda: not thread.is_alive())
    assert sender.metrics()["sender/steps_total"] == 4000
    assert sender.metrics()["sender/waits_total"] == 1, "the next chunk asks first, and finds room"
    assert commands_and_bytes(run)[0]["setex"] <= 5 + 1, "each is sent once, the first one twice"
