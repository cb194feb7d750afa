"""FIFOReplay on a real Redis: each step once, in order, whoever dies; nothing goes before it was committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from naive_replay import DEADLINE_S, Pool, in_thread, live, names_of

from surreal.base.errors import ContractError, ReplayFullError
from surreal.base.types import TrajectoryBatch
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import FIFOReplay, UniformReplay
from surreal.replay.trajectories import ledger

Trajectory = list[int]


@pytest.fixture
def make_fifo(run: Any) -> Iterator[Callable[..., FIFOReplay]]:
    replays: list[FIFOReplay] = []

    def make(**options: Any) -> FIFOReplay:
        options = {"batch_size": 2, "trajectory_steps": 5, "gamma": 0.5, "lease_s": 0.2} | options
        replays.append(FIFOReplay(options.pop("client", run.client), **options))
        return replays[-1]

    yield make
    for replay in replays:
        replay.stop()
        replay.join()


def feed(pool: Pool, sender: ExpSender, turns: int) -> None:
    for _ in range(turns):
        sender.send_batch(*pool.recv())
    sender.outbox.push(timeout_s=sender._push.keywords["timeout_s"], is_limited=False)  # nothing stays under way


def turn(replay: FIFOReplay) -> None:
    """Read what is there, and do all that can be done."""
    replay.owner.claim()
    queue = replay.pointer_queue
    has_more = True
    while has_more:
        queue.has_caught_up.clear()  # so that reading does not wait
        has_more = queue.enqueue_step() > 0 or len(queue) > 0
        replay.step(timeout_s=0.0)


def settle(replay: FIFOReplay) -> None:
    """Turn until Redis knows what was committed."""
    deadline_s = time.monotonic() + DEADLINE_S
    replay.step(timeout_s=0.0)
    while replay.owner.num_pending:
        assert time.monotonic() < deadline_s
        replay.step(timeout_s=0.001)


def trajectories(batch: TrajectoryBatch) -> list[Trajectory]:
    """Names of the steps of each trajectory."""
    mask = batch.mask.numpy() > 0
    names = np.array([names_of([row.numpy()]) for row in batch.obs[:-1]])
    return [names[mask[:, column], column].tolist() for column in range(mask.shape[1])]


def drain(replay: FIFOReplay) -> list[Trajectory]:
    """All batches that are complete now."""
    found: list[Trajectory] = []
    while True:
        turn(replay)
        batch = replay.dequeue(timeout_s=0.001)
        if batch is None:
            return found
        found += trajectories(batch)


def flush_pieces(replay: FIFOReplay) -> None:
    """Give up what is open now, in place of waiting for the timeout."""
    turn(replay)
    replay._break_off(np.inf)


def orders(pool: Pool) -> list[Trajectory]:
    """The steps of each environment, in order."""
    return [[step[0] for episode in naive.episodes for step in episode] for naive in pool.naives]


def assert_each_once_in_order(found: list[Trajectory], pools: list[Pool]) -> None:
    lanes = [lane for pool in pools for lane in orders(pool)]
    lane_of = {name: i for i, lane in enumerate(lanes) for name in lane}
    got: list[Trajectory] = [[] for _ in lanes]
    for trajectory in found:
        if trajectory:
            got[lane_of[trajectory[0]]] += trajectory
    assert got == lanes


def pools_and_senders(run: Any, seed: int) -> tuple[list[Pool], list[ExpSender]]:
    pools = [Pool(3, 1, 0.5, is_dict=False, seed=seed), Pool(1, 1, 0.5, is_dict=False, seed=seed + 100)]
    pools[1].name = 100_000  # names of its own
    return pools, [run.sender(chunk_steps=7 + 10 * (seed % 2)), run.sender(chunk_steps=16, lookahead=0)]


@pytest.mark.parametrize("seed", range(4))
def test_each_step_is_handed_out_once_in_order_and_gone_when_committed(
    run: Any, make_fifo: Callable[..., FIFOReplay], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    replay = make_fifo(batch_size=1 + seed % 3, trajectory_steps=(1, 5, 8, 20)[seed])
    pools, senders = pools_and_senders(run, seed)
    found: list[Trajectory] = []
    for _ in range(12):
        for pool, sender in zip(pools, senders, strict=True):
            feed(pool, sender, int(rng.integers(1, 20)))
        found += drain(replay)
        if rng.random() < 0.5:
            replay.commit()
            settle(replay)
            assert replay.metrics()["replay/uncommitted_batches_count"] == 0
    for sender in senders:
        assert sender.close(DEADLINE_S)
    found += drain(replay)
    assert all(len(trajectory) > 0 for trajectory in found)
    turn(replay)
    replay.batch_size = 1  # what is left makes no whole batch
    flush_pieces(replay)
    found += drain(replay)
    assert_each_once_in_order(found, pools)
    assert live(run)[0] > 0
    replay.commit()
    settle(replay)
    assert live(run) == (0, 0, 0, 0)
    assert len(replay) == 0
    meta = run.client.redis.hgetall(run.client.shard_keys().meta)
    assert meta[b"mode"] == b"consume"
    assert not [key for key in meta if key.startswith(b"done:")]


@pytest.mark.parametrize("seed", range(4))
def test_a_learner_that_dies_takes_nothing_along(run: Any, make_fifo: Callable[..., FIFOReplay], seed: int) -> None:
    """Killed at any point, the next one is handed the same trajectories again, and nothing that was committed."""
    rng = np.random.default_rng(seed)
    options = {"batch_size": 2, "trajectory_steps": 4 + 3 * (seed % 3)}
    replay = make_fifo(**options)
    pools, senders = pools_and_senders(run, seed)
    committed: list[Trajectory] = []
    deaths = 0
    uncommitted: list[Trajectory] = []
    for _ in range(15):
        for pool, sender in zip(pools, senders, strict=True):
            feed(pool, sender, int(rng.integers(1, 15)))
        uncommitted += drain(replay)
        choice = rng.random()
        if choice < 0.4:
            replay.commit()
            settle(replay)
            committed, uncommitted = committed + uncommitted, []
        elif choice < 0.7:
            replay = make_fifo(**options)  # the other one is not heard of again
            deaths += 1
            again = drain(replay)
            assert again == uncommitted
            uncommitted = again
    assert deaths > 0
    for sender in senders:
        assert sender.close(DEADLINE_S)
    uncommitted += drain(replay)
    replay.batch_size = 1
    flush_pieces(replay)
    uncommitted += drain(replay)
    assert_each_once_in_order(committed + uncommitted, pools)
    replay.commit()
    settle(replay)
    assert live(run) == (0, 0, 0, 0)


def test_a_second_learner_reads_nothing_before_the_first_is_gone(
    run: Any, make_fifo: Callable[..., FIFOReplay]
) -> None:
    """What it had downloaded by then would be learned from twice: the first one still consumes it."""
    first, second = make_fifo(trajectory_steps=4, batch_size=2), make_fifo(trajectory_steps=4, batch_size=2)
    pool, sender = Pool(3, 1, 0.5, is_dict=False), run.sender(chunk_steps=7)
    feed(pool, sender, 20)
    turn(first)
    assert second.pointer_queue.enqueue_step() == 0
    found = drain(first)
    first.commit()
    settle(first)
    first.stop()
    assert first.join(DEADLINE_S)
    feed(pool, sender, 20)
    assert sender.close(DEADLINE_S)
    found += drain(second)
    second.batch_size = 1
    flush_pieces(second)
    found += drain(second)
    assert_each_once_in_order(found, [pool])


def play(sender: ExpSender, versions: list[int], *, ends: bool = False) -> None:
    """Send a step acted by each of these versions, and wait until they are there."""
    for number, version in enumerate(versions):
        obs = np.array([number], np.float32)
        done = ends and number % 3 == 2
        sender.send([obs, obs + 1], 0, 1.0, done=done, version=version)
    sender.flush()


def test_the_learner_is_told_how_far_it_has_learned_from_each_sender(
    run: Any, make_fifo: Callable[..., FIFOReplay]
) -> None:
    """A round of all agents is one batch; a part of a round that makes no batch keeps no agent waiting."""
    replay = make_fifo(trajectory_steps=4, batch_size=2)
    senders = [run.sender(chunk_steps=1000, lookahead=0) for _ in range(3)]
    names = [sender.sent_through[0] for sender in senders]
    for sender in senders:
        play(sender, [1] * 4)
    turn(replay)
    assert replay.learned == {}
    assert replay.dequeue(0.0) is not None
    assert replay.learned == dict.fromkeys(names, 1), "the third trajectory waits for a fourth"
    play(senders[0], [2] * 4)
    play(senders[1], [2] * 8)
    turn(replay)
    assert replay.dequeue(0.0) is not None
    assert replay.learned == dict(zip(names, (2, 1, 1), strict=True)), "two of the second sender are next"
    turn(replay)
    assert replay.dequeue(0.0) is not None
    assert replay.learned == dict(zip(names, (2, 2, 1), strict=True))
    assert [sender.sent_through[1] for sender in senders] == [2, 2, 1]


def test_in_rounds_every_trajectory_is_of_one_version(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    replay = make_fifo(trajectory_steps=4, batch_size=1, in_rounds=True)
    sender = run.sender(chunk_steps=1000, lookahead=0)
    # A step of the second round was lost, and the last round is not over.
    for version, steps in ((1, 4), (2, 3), (3, 4), (4, 4), (4, 1)):
        play(sender, [version] * steps, ends=True)
    found = []
    while True:
        turn(replay)
        batch = replay.dequeue(timeout_s=0.001)
        if batch is None:
            break
        found.append(set(batch.version[batch.mask > 0].tolist()))
        assert int(batch.mask.sum()) == 4
        assert len(batch.mask) == 5, "one episode ends inside"
    assert found == [{1}, {3}, {4}]
    assert replay.metrics()["replay/filled_trajectories_total"] == 1
    replay.commit()
    settle(replay)
    assert live(run)[2] == 1, "what was dropped is consumed, the last step is open"


def test_commit_is_of_what_was_handed_out_and_is_done_by_join_at_last(
    run: Any, make_fifo: Callable[..., FIFOReplay]
) -> None:
    replay = make_fifo(batch_size=1, trajectory_steps=8)
    pool, sender = Pool(1, 1, 0.5, is_dict=False), run.sender(chunk_steps=8)
    feed(pool, sender, 60)
    sender.flush()
    turn(replay)
    assert len(replay.fetcher_queue) == 1  # made ahead, and nobody's yet
    replay.commit()
    settle(replay)
    before = live(run)
    assert before[0] >= 4
    first = replay.dequeue(1.0)
    turn(replay)
    assert len(replay.fetcher_queue) == 1
    replay.commit()
    replay.stop()
    assert replay.join(DEADLINE_S)
    assert live(run)[2] < before[2]
    assert run.client.redis.exists(run.client.shard_keys().lease) == 0
    second = make_fifo(batch_size=1, trajectory_steps=8)
    turn(second)
    batch = second.dequeue(1.0)
    assert first is not None and batch is not None
    expected = orders(pool)[0]
    done = len(trajectories(first)[0])
    assert trajectories(first)[0] == expected[:done]
    assert trajectories(batch)[0] == expected[done : done + len(trajectories(batch)[0])]


def test_too_old_trajectories_are_dropped_and_counted(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    replay = make_fifo(batch_size=1, trajectory_steps=5, max_version_lag=10)
    pool, sender = Pool(1, 1, 0.5, is_dict=False, seed=2), run.sender(chunk_steps=64)
    feed(pool, sender, 200)
    sender.flush()
    newest = pool.version
    turn(replay)
    found = drain(replay)
    steps = {step[0]: step[5] for episode in pool.naives[0].episodes for step in episode}
    metrics = replay.metrics()
    assert metrics["replay/stale_trajectories_total"] > 10
    for trajectory in found[1:]:  # the first was made when fewer versions were known
        assert newest - min(steps[name] for name in trajectory) <= 10 + 64
    replay.commit(version=newest + 1000)
    turn(replay)
    settle(replay)
    assert not drain(replay)
    assert len(replay._ready) == 0
    feed(pool, sender, 64)
    sender.flush()
    assert not drain(replay)
    settle(replay)
    assert live(run)[0] <= 1, "what was dropped needs no commit"


def test_the_first_owner_fixes_the_streams_mode(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    sender = run.sender()
    feed(Pool(1, 1, 0.5, is_dict=False), sender, 40)
    sender.flush()
    consuming = make_fifo()
    turn(consuming)
    consuming.join()
    window = run.replay()
    with pytest.raises(ContractError, match="mode consume, not window"):
        window.step(timeout_s=0)
    turn(make_fifo())


def test_a_window_is_not_consumed(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    window = run.replay()
    window.step(timeout_s=0)
    window.join()
    with pytest.raises(ContractError, match="mode window, not consume"):
        make_fifo().step(timeout_s=0)


def test_agents_wait_while_nothing_is_committed(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    replay = make_fifo(max_bytes=40_000)
    sender, pool = run.sender(chunk_steps=64, wait_timeout_s=0.2), Pool(2, 1, 0.5, is_dict=False)
    replay.step(timeout_s=0)
    replay.owner.owners[0].bound_bytes = 60_000  # without a memory limit the room above max_bytes is large
    replay.owner.owners[0].last_tick_s = 0.0
    replay.step(timeout_s=0)
    found: list[Trajectory] = []
    with pytest.raises(ReplayFullError):
        for _ in range(1000):
            feed(pool, sender, 10)
            found += drain(replay)
    assert live(run)[3] <= 60_000
    sender._push.keywords["timeout_s"] = 60.0
    for _ in range(30):
        replay.commit()
        settle(replay)
        feed(pool, sender, 10)
        sender.flush()
        found += drain(replay)
    assert sender.close(DEADLINE_S)
    found += drain(replay)
    replay.batch_size = 1
    flush_pieces(replay)
    found += drain(replay)
    assert sender.metrics()["sender/dropped_steps_total"] == 0
    assert_each_once_in_order(found, [pool])


def test_a_full_stream_of_open_trajectories_goes_on(
    run: Any, make_fifo: Callable[..., FIFOReplay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents wait for room, the batch waits for steps: what is open is filled up."""
    monkeypatch.setattr(ledger, "_FULL_TIMEOUT_S", 0.0)
    replay = make_fifo(batch_size=2, trajectory_steps=1000, max_bytes=20_000)
    replay.step(timeout_s=0)
    sender, pool = run.sender(chunk_steps=64), Pool(3, 1, 0.5, is_dict=False)
    feed(pool, sender, 600)
    sender.flush()
    turn(replay)
    replay.owner.owners[0].last_tick_s = 0.0
    for _ in range(4):
        replay.step(timeout_s=0)
    batch = replay.dequeue(1.0)
    assert batch is not None
    assert 0 < batch.mask.sum() < 2 * 1000
    assert replay.metrics()["replay/filled_trajectories_total"] == 3


def test_a_byte_bound_that_cannot_hold_a_batch_is_an_error_not_a_silence(
    run: Any, make_fifo: Callable[..., FIFOReplay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FULL_TIMEOUT_S", 0.0)
    replay = make_fifo(batch_size=8, trajectory_steps=1000, max_bytes=20_000)
    replay.step(timeout_s=0)
    sender = run.sender(chunk_steps=64)
    feed(Pool(3, 1, 0.5, is_dict=False), sender, 600)
    sender.flush()
    turn(replay)
    replay.owner.owners[0].last_tick_s = 0.0
    with pytest.raises(ValueError, match=r"max_bytes is .* a batch takes 8 trajectories of 1000"):
        for _ in range(5):
            replay.step(timeout_s=0)


def test_an_emptied_redis_loses_no_step_that_arrived_and_repeats_none(
    make_run: Callable[[str], Any], start_redis: Callable[..., Any]
) -> None:
    run = make_run(start_redis().address)
    replay = FIFOReplay(run.client, batch_size=1, trajectory_steps=6, gamma=0.5)
    run.replays.append(replay)
    sender, pool = run.sender(chunk_steps=8), Pool(1, 1, 0.5, is_dict=False)
    feed(pool, sender, 50)
    sender.flush()
    found = drain(replay)
    run.client.redis.flushall()
    feed(pool, sender, 50)
    assert sender.close(DEADLINE_S)
    replay.owner.owners[0].last_tick_s = 0.0
    found += drain(replay)
    flush_pieces(replay)
    found += drain(replay)
    assert_each_once_in_order(found, [pool])
    replay.commit()
    settle(replay)
    assert live(run) == (0, 0, 0, 0)


def test_with_threads_nothing_is_lost(run: Any, make_fifo: Callable[..., FIFOReplay]) -> None:
    replay = make_fifo(batch_size=2, trajectory_steps=16, max_bytes=200_000, lease_s=5.0)
    sender, pool = run.sender(chunk_steps=32), Pool(4, 1, 0.5, is_dict=False)
    found: list[Trajectory] = []

    def act() -> None:
        feed(pool, sender, 800)
        assert sender.close(DEADLINE_S)

    replay.start_threads()
    with in_thread(act) as agents:
        deadline_s = time.monotonic() + DEADLINE_S
        while agents.is_alive() or sum(map(len, found)) < sum(map(len, orders(pool))) - 5 * 16:
            assert time.monotonic() < deadline_s
            batch = replay.dequeue(timeout_s=0.05)
            if batch is not None:
                found += trajectories(batch)
                replay.commit(version=pool.version)
    replay.stop()
    assert replay.join(DEADLINE_S)
    lanes = orders(pool)
    lane_of = {name: i for i, lane in enumerate(lanes) for name in lane}
    got: list[Trajectory] = [[] for _ in lanes]
    for trajectory in found:
        got[lane_of[trajectory[0]]] += trajectory
    for steps, lane in zip(got, lanes, strict=True):
        assert steps == lane[: len(steps)]
    assert live(run)[2] >= sum(map(len, lanes)) - sum(map(len, got))


def test_a_uniform_replay_ignores_commits(run: Any) -> None:
    replay: UniformReplay = run.replay()
    replay.commit(version=3)


def test_max_bytes_hold_agents_also_where_redis_has_more_memory(
    start_redis: Callable[..., Any], make_run: Callable[..., Any]
) -> None:
    run = make_run(start_redis(maxmemory="256mb").address)
    replay = FIFOReplay(run.client, batch_size=1, trajectory_steps=6, max_bytes=1 << 20)
    run.replays.append(replay)
    replay.step(timeout_s=0)
    assert int(run.client.redis.hget(run.client.shard_keys().meta, "max_bytes")) <= 6 << 20
