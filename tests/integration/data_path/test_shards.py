"""Several shards: on one server, on several, and in a Redis Cluster. Those that die: `test_shard_failures`."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest
from naive_replay import DEADLINE_S, wait_until
from sharded_run import Agent, fill, make_replay, rewards, steps_of

from surreal.base.errors import StoppedError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import NUM_SLOTS, ShardKeys
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay import FIFOReplay, PrioritizedReplay, Replay, UniformReplay
from surreal.replay.archive import export_replay, import_replay

# where shards are


@pytest.mark.parametrize("num_shards", [2, 3, 4, 6, 7, 12, 100])
def test_tags_spread_evenly_over_the_slots(num_shards: int) -> None:
    for run in ("r", "cartpole-dqn", "a.b_c-d"):
        slots = [ShardKeys(run, shard, num_shards).hash_slot for shard in range(num_shards)]
        parts = [slot * num_shards // NUM_SLOTS for slot in slots]
        assert parts == list(range(num_shards))
        if num_shards % 3 == 0:  # three masters, as redis-cli divides the slots
            masters = [0 if slot <= 5460 else 1 if slot <= 10922 else 2 for slot in slots]
            assert [masters.count(master) for master in range(3)] == [num_shards // 3] * 3


def test_a_run_of_one_shard_has_the_plain_name() -> None:
    assert ShardKeys("r").stream == "surreal:{r:s0}:stream"
    assert ShardKeys("r", 1, 2).stream.startswith("surreal:{r:s1.")


def test_wrong_numbers_of_shards_are_refused(redis_server: Any, run_id: str) -> None:
    client = RedisClient(redis_server.address, run=run_id)
    with pytest.raises(ValueError, match="1 shards on 2 servers"):
        ReplayShards([client, client], 1)
    with pytest.raises(ValueError, match="0 shards"):
        ReplayShards(client, 0)
    with pytest.raises(ValueError, match="same run"):
        ReplayShards([client, RedisClient(redis_server.address, run="another")])
    shards = ReplayShards(client, 2)
    with pytest.raises(ValueError, match=r"shard is 2; it must be 0 \.\. 1"):
        ExpSender(shards, shard=2)
    with pytest.raises(ValueError, match="shard is 5"):
        UniformReplay(shards, shards=[0, 5])
    with pytest.raises(ValueError, match="shards is empty"):
        UniformReplay(shards, shards=[])


# one replay over several shards


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_batches_come_from_all_shards(
    redis_server: Any, make_shards: Any, stack: ExitStack, kind: type[Replay], observations: Any
) -> None:
    shards = make_shards(redis_server.address, num_shards=3)
    replay = make_replay(stack, shards, kind, observations=observations, batch_size=64)
    agents = [Agent(shards, number) for number in range(3)]
    for agent in agents:
        agent.step(41)
        agent.flush()
    fill(replay, 120)
    assert steps_of(shards) == [40, 40, 40]
    assert sorted(rewards(replay)) == sorted(1_000_000 * number + i for number in range(3) for i in range(40))
    seen = set()
    for _ in range(30):
        while (batch := replay.dequeue(timeout_s=0.0)) is None:
            replay.step(timeout_s=0)
        np.testing.assert_array_equal(batch.obs[:, 0], batch.reward)
        np.testing.assert_array_equal(batch.next_obs[:, 1], -batch.reward - 1)
        seen |= set(batch.reward.numpy().astype(int).tolist())
    assert seen == set(rewards(replay))
    wait_until(lambda: (replay.step(timeout_s=0), replay.global_step == 120)[-1])
    assert replay.metrics()["replay/shards_count"] == 3


def test_the_oldest_leaves_whichever_shard_it_is_on(redis_server: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_server.address, num_shards=2)
    replay = make_replay(stack, shards, capacity=60)
    agents = [Agent(shards, number) for number in range(2)]
    for agent in (*agents, *agents, *agents, *agents):  # ten each, in turn
        agent.step(11 if agent.next % 1_000_000 == 0 else 10)
        agent.flush()
        next_ms = shards.clients[0].server_time_s() + 0.001  # the shards' chunks are in the order of milliseconds
        wait_until(lambda next_ms=next_ms: shards.clients[0].server_time_s() >= next_ms)
    fill(replay, 50)
    wait_until(lambda: (replay.pointer_queue.enqueue_step(), replay.step(timeout_s=0), len(replay) == 60)[-1])
    kept = sorted(1_000_000 * number + i for number in range(2) for i in range(10, 40))
    assert sorted(rewards(replay)) == kept
    wait_until(lambda: (replay.step(timeout_s=0), steps_of(shards) == [30, 30])[-1])
    # A replay that begins now has the same order, though it reads one shard after the other.
    again = make_replay(stack, make_shards(redis_server.address, num_shards=2), capacity=60, is_owner=False)
    fill(again, 60)
    assert rewards(again) == rewards(replay)


def test_agents_know_the_steps_of_the_whole_run(redis_server: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_server.address, num_shards=2)
    replay = make_replay(stack, shards)
    first, second = (Agent(shards, number) for number in range(2))
    first.step(31)
    first.flush()
    fill(replay, 30)
    wait_until(lambda: (replay.step(timeout_s=0), replay.global_step == 30)[-1])

    def second_knows() -> bool:
        replay.step(timeout_s=0)
        second.step(10)
        second.flush()
        return bool(second.sender.global_step > 30)

    wait_until(second_knows)
    assert second.sender.global_step == 30 + sum(steps_of(shards)[1:])


def test_the_limiter_holds_all_shards_together(redis_server: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_server.address, num_shards=3)
    ratio, start, tolerance = 2.0, 50, 80.0
    replay = make_replay(
        stack, shards, start_size=start, samples_per_insert=ratio, samples_per_insert_tolerance=tolerance
    )
    replay.start_threads()
    agents = [Agent(make_shards(redis_server.address, num_shards=3), number, is_limited=True) for number in range(3)]
    stop = threading.Event()

    def act(agent: Agent) -> None:
        with suppress(StoppedError):
            while not stop.is_set():
                agent.step(10)
                agent.flush()

    threads = [threading.Thread(target=act, args=(agent,), daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        for _ in range(150):
            assert replay.dequeue(DEADLINE_S) is not None
            inserted = sum(stream.counts().steps for stream in shards.streams())
            # Never more than the credit that the samples drawn until now give; batches made ahead count as drawn.
            assert inserted <= start + (replay.num_samples + tolerance) / ratio
        # Each shard has its part of the credit.
        wait_until(lambda: (replay.dequeue(timeout_s=0.05), all(steps > 0 for steps in steps_of(shards)))[-1])
    finally:
        stop.set()
        for agent in agents:
            agent.sender._stop = stop
        while any(thread.is_alive() for thread in threads):
            replay.dequeue(timeout_s=0.05)
    assert replay.num_samples >= ratio * (replay.global_step - start) - tolerance - 3 * 10 * ratio


@pytest.mark.parametrize("comes_first", ["small chunks", "large chunks"])
def test_chunks_larger_than_a_shards_part_of_the_credit_get_in(
    redis_server: Any, make_shards: Any, stack: ExitStack, comes_first: str
) -> None:
    limits = {"start_size": 20, "samples_per_insert": 1.0, "samples_per_insert_tolerance": 40.0}
    replay = make_replay(stack, make_shards(redis_server.address, num_shards=4), **limits)
    replay.start_threads()
    stop, options = threading.Event(), {"is_limited": True, "wait_timeout_s": 60.0}
    if comes_first == "small chunks":  # the replay has begun before it hears of large ones
        first = Agent(make_shards(redis_server.address, num_shards=4), 0, chunk_steps=5, stop=stop, **options)
        first.step(21)
        first.flush()
        wait_until(lambda: len(replay) == 20)
    agents = [
        Agent(make_shards(redis_server.address, num_shards=4), number, chunk_steps=40, stop=stop, **options)
        for number in range(4)
    ]

    def act(agent: Agent) -> None:
        with suppress(StoppedError):
            while not stop.is_set():
                agent.step(5)

    threads = [threading.Thread(target=act, args=(agent,), daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            assert replay.dequeue(DEADLINE_S) is not None
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)


def test_learners_split_the_shards(redis_server: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_server.address, num_shards=4)
    replays = [
        make_replay(
            stack, make_shards(redis_server.address, num_shards=4), FIFOReplay,
            batch_size=2, trajectory_steps=5, shards=[number, number + 2],
        )
        for number in range(2)
    ]  # fmt: skip
    agents = [Agent(shards, number) for number in range(4)]
    for agent in agents:
        agent.step(21)
        agent.flush()
    taken: list[set[int]] = [set(), set()]
    for replay, mine in zip(replays, taken, strict=True):
        replay.start_threads()
        for _ in range(4):
            batch = replay.dequeue(DEADLINE_S)
            mine |= set(batch.reward.numpy().astype(int).ravel().tolist())
            replay.commit()
        wait_until(lambda replay=replay: replay.global_step == 80)
    assert {reward // 1_000_000 for reward in taken[0]} == {0, 2}
    assert {reward // 1_000_000 for reward in taken[1]} == {1, 3}
    assert len(taken[0] | taken[1]) == 80
    wait_until(lambda: steps_of(shards) == [0, 0, 0, 0])


def test_an_archive_has_all_shards_and_spreads_again(
    redis_server: Any, make_shards: Any, stack: ExitStack, tmp_path: Any, run_id: str
) -> None:
    shards = make_shards(redis_server.address, num_shards=3)
    agents = [Agent(shards, number) for number in range(4)]
    for agent in agents:
        agent.step(21)
        agent.flush()
    manifest = export_replay(shards, tmp_path / "archive")
    assert (manifest.steps, manifest.global_step, manifest.chunks) == (80, 80, 12)
    target = ReplayShards(RedisClient(redis_server.address, run=f"{run_id}-copy"), 2)
    stack.callback(target.delete_run)
    result = import_replay(target, tmp_path / "archive")
    assert (result.steps, result.chunks, steps_of(target)) == (80, 12, [40, 40])
    assert import_replay(target, tmp_path / "archive").known_chunks == 12
    replay = make_replay(stack, target)
    fill(replay, 80)
    assert sorted(rewards(replay)) == sorted(1_000_000 * number + i for number in range(4) for i in range(20))


# Redis Cluster


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_a_cluster_of_three_masters(redis_cluster: Any, make_shards: Any, stack: ExitStack, observations: Any) -> None:
    shards = make_shards(redis_cluster.address, num_shards=6)
    replay = make_replay(stack, shards, batch_size=64, observations=observations, capacity=150)
    agents = [Agent(shards, number) for number in range(6)]
    ports = [stream.client.redis.connection_pool.get_connection().port for stream in shards.streams()]
    assert sorted(ports) == sorted(2 * list(redis_cluster.ports)), "two shards on each master"
    replay.start_threads()
    for _ in range(4):
        for agent in agents:
            agent.step(10)
            agent.flush()
    for _ in range(20):
        batch = replay.dequeue(DEADLINE_S)
        np.testing.assert_array_equal(batch.obs[:, 0], batch.reward)
    sent = sum(agent.next - 1_000_000 * number - 1 for number, agent in enumerate(agents))
    wait_until(lambda: replay.global_step == sent)
    wait_until(lambda: sum(steps_of(shards)) == len(replay) <= 150)
    assert shards.clients[0].delete_run() > 0
    assert sum(steps_of(shards)) == 0


def test_a_slot_that_moves_is_followed(redis_cluster: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_cluster.address, num_shards=3)
    replay = make_replay(stack, shards)
    replay.start_threads()
    agent = Agent(shards, 1)
    agent.step(31)
    agent.flush()
    wait_until(lambda: len(replay) == 30)
    moved = itertools.cycle((0, 2, 1))
    for _ in range(3):
        redis_cluster.move_slot(shards.keys[1].hash_slot, to=next(moved))
        agent.step(30)
        agent.flush()
    wait_until(lambda: len(replay) == 120)
    assert rewards(replay) == list(range(1_000_000, 1_000_120))
    wait_until(lambda: replay.global_step == 120)
