"""Shards whose servers die or hang, one or all of them: agents and learner go on, and lose nothing acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from naive_replay import DEADLINE_S, wait_until
from sharded_run import Agent, fill, make_replay, rewards, steps_of

from surreal.base.errors import ReplayFullError
from surreal.distributed.experience.sharded_outbox import ShardedOutbox
from surreal.replay import FIFOReplay, MixedTrajectoryReplay

HOWS = ["dies", "hangs"]


def fail(server: Any, how: str) -> Callable[[], None]:
    """Kill a server, or have it hang; returns what brings it back."""
    if how == "dies":
        server.kill()
        return server.start  # type: ignore[no-any-return]
    server.pause()
    return server.resume  # type: ignore[no-any-return]


def is_at_home(agent: Agent) -> bool:
    """Whether an agent's experience goes to its own shard."""
    outbox = agent.sender.outbox
    assert isinstance(outbox, ShardedOutbox)
    return outbox._current == outbox._home


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
@pytest.mark.parametrize("keeps_data", [True, False])
def test_a_shard_that_dies_is_bypassed_and_used_again(
    start_redis: Any, make_shards: Any, stack: ExitStack, keeps_data: bool, observations: Any
) -> None:
    servers = [start_redis(port=0, appendonly=keeps_data) for _ in range(2)]
    addresses = [server.address for server in servers]
    replay = make_replay(stack, make_shards(*addresses), batch_size=32, observations=observations)
    agents = [Agent(make_shards(*addresses), number) for number in range(2)]
    for agent in agents:
        agent.step(51)
        agent.flush()
    replay.start_threads()
    assert replay.dequeue(DEADLINE_S) is not None
    wait_until(lambda: len(replay) == 100)

    servers[1].kill()
    for agent in agents:  # both go on; the second one's experience goes to the first one's shard
        agent.step(50)
        agent.flush()
    outbox = agents[1].sender.outbox
    assert not is_at_home(agents[1])
    assert outbox.metrics()["sender/shard_changes_total"] >= 1
    kept = outbox.metrics()["sender/kept_chunks_count"]
    assert kept <= 1, "only what was tried waits for the shard"
    wait_until(lambda: replay.metrics()["replay/shards_away_count"] == 1)
    wait_until(lambda: len(replay) >= 200 - 10 * kept)
    for _ in range(20):
        batch = replay.dequeue(DEADLINE_S)
        assert batch is not None, "the learner goes on"
        np.testing.assert_array_equal(batch.obs[:, 0], batch.reward)
    if observations == "remote":  # what is on the dead server cannot be fetched
        drawn = set(batch.reward.numpy().astype(int).tolist())
        assert not drawn & set(range(1_000_000, 1_000_050))

    servers[1].start()
    wait_until(lambda: replay.metrics()["replay/shards_away_count"] == 0)

    def is_home() -> bool:
        agents[1].step(10)
        agents[1].flush()
        return is_at_home(agents[1])

    wait_until(is_home)
    agents[1].step(50)
    agents[1].flush()
    assert outbox.metrics()["sender/kept_chunks_count"] == 0
    sent = agents[1].next - 1 - 1_000_000
    lost = 50 if observations == "remote" and not keeps_data else 0
    wait_until(lambda: sum(reward >= 1_000_000 for reward in rewards(replay)) >= sent - lost)
    if not lost:
        found = sorted(reward for reward in rewards(replay) if reward >= 1_000_000)
        assert found == list(range(1_000_000, 1_000_000 + sent)), "nothing is lost, nothing comes twice"
    wait_until(lambda: replay.metrics()["replay/shards_emptied_total"] == (0 if keeps_data else 1))
    wait_until(lambda: replay.global_step == agents[0].next - 1 + sent)
    for agent in agents:
        assert agent.sender.close()
        assert agent.sender.metrics()["sender/dropped_chunks_total"] == 0


def test_a_learner_starts_while_a_shard_is_dead(start_redis: Any, make_shards: Any, stack: ExitStack) -> None:
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    addresses = [server.address for server in servers]
    agents = [Agent(make_shards(*addresses), number) for number in range(2)]
    for agent in agents:
        agent.step(31)
        agent.flush()
    servers[0].kill()
    replay = make_replay(stack, make_shards(*addresses))
    replay.start_threads()
    assert replay.dequeue(DEADLINE_S) is not None
    wait_until(lambda: (len(replay), replay.metrics()["replay/shards_away_count"]) == (30, 1))
    servers[0].start()
    wait_until(lambda: len(replay) == 60)
    wait_until(lambda: replay.global_step == 60)
    assert all(owner.is_owner for owner in replay.owner.owners)


def test_a_chunk_for_a_shard_that_never_returns_is_counted(
    start_redis: Any, make_shards: Any, stack: ExitStack
) -> None:
    servers = [start_redis(port=0) for _ in range(2)]
    agent = Agent(make_shards(*(server.address for server in servers)), 1)
    agent.step(11)
    agent.flush()
    servers[1].kill()
    agent.step(30)
    agent.flush()
    assert not agent.sender.close()
    metrics = agent.sender.metrics()
    assert (
        metrics["sender/dropped_chunks_total"],
        metrics["sender/steps_total"] + metrics["sender/dropped_steps_total"],
    ) == (1, 40)


# servers that hang, which take connections and never answer


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_a_shard_that_hangs_is_bypassed_and_used_again(
    start_redis: Any, make_shards: Any, stack: ExitStack, observations: Any
) -> None:
    servers = [start_redis(port=0) for _ in range(2)]
    addresses = [server.address for server in servers]
    replays = [
        make_replay(
            stack, make_shards(*addresses, timeout_s=0.5), observations=observations, is_owner=is_owner
        )
        for is_owner in (True, False)
    ]  # fmt: skip
    agents = [Agent(make_shards(*addresses, timeout_s=0.5), number) for number in range(2)]
    for agent in agents:
        agent.step(51)
        agent.flush()
    for replay in replays:
        replay.start_threads()
        assert replay.dequeue(DEADLINE_S) is not None
        wait_until(lambda replay=replay: len(replay) == 100)
    come_back = fail(servers[1], "hangs")
    for agent in agents:
        agent.step(50)
        agent.flush()
    kept = agents[1].sender.metrics()["sender/kept_chunks_count"]
    for replay in replays:
        wait_until(lambda replay=replay: replay.metrics()["replay/shards_away_count"] == 1)
        wait_until(lambda replay=replay: len(replay) >= 200 - 10 * kept)
        for _ in range(20):
            assert replay.dequeue(DEADLINE_S) is not None, "the learner goes on"
    come_back()
    for replay in replays:
        wait_until(lambda replay=replay: replay.metrics()["replay/shards_away_count"] == 0)

    def is_home() -> bool:
        agents[1].step(10)
        agents[1].flush()
        return is_at_home(agents[1])

    wait_until(is_home)
    assert agents[1].sender.metrics()["sender/kept_chunks_count"] == 0
    sent = sum(agent.next - 1 - 1_000_000 * number for number, agent in enumerate(agents))
    for replay in replays:
        wait_until(lambda replay=replay: len(replay) == sent)
        assert len(set(rewards(replay))) == sent, "nothing comes twice"
        wait_until(lambda replay=replay: replay.global_step == sent)


# all of them


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_all_shards_away_for_a_while(
    start_redis: Any, make_shards: Any, stack: ExitStack, observations: Any, how: str
) -> None:
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    addresses = [server.address for server in servers]
    replay = make_replay(stack, make_shards(*addresses, timeout_s=0.5), observations=observations)
    agents = [Agent(make_shards(*addresses, timeout_s=0.5), number) for number in range(2)]
    for agent in agents:
        agent.step(51)
        agent.flush()
    replay.start_threads()
    wait_until(lambda: len(replay) == 100)
    come_back = [fail(server, how) for server in servers]

    def act(agent: Agent) -> None:
        agent.step(50)
        agent.flush()

    threads = [threading.Thread(target=act, args=(agent,), daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    wait_until(lambda: (replay.dequeue(0.05), replay.metrics()["replay/shards_away_count"] == 2)[-1])
    if observations == "mirrored":
        assert all(replay.dequeue(DEADLINE_S) is not None for _ in range(20)), "what is mirrored is still there"
    replay.check()
    for again in come_back:
        again()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()

    def have_sent() -> bool:  # a chunk that was tried where no answer came goes there with a later push
        for agent in agents:
            agent.sender.flush_due()
        return all(agent.sender.metrics()["sender/kept_chunks_count"] == 0 for agent in agents)

    wait_until(have_sent)
    wait_until(lambda: (replay.dequeue(0.05), len(replay) == 200)[-1])
    assert len(set(rewards(replay))) == 200
    assert replay.dequeue(DEADLINE_S) is not None
    assert all(agent.sender.close() for agent in agents)


def test_a_learner_that_starts_first_waits_for_a_shard(start_redis: Any, make_shards: Any, stack: ExitStack) -> None:
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    shards = make_shards(*(server.address for server in servers))
    agents = [Agent(shards, number) for number in range(2)]
    for agent in agents:
        agent.step(11)
        agent.flush()
    for server in servers:
        server.kill()
    replay = make_replay(stack, make_shards(*(server.address for server in servers)), lease_s=0.1)
    replay.start_threads()
    wait_until(lambda: replay.metrics()["replay/shards_away_count"] == 2)
    threading.Event().wait(1.5)  # longer than a lease that somebody else holds is waited for
    replay.check()
    for server in servers:
        server.start()
    assert replay.dequeue(DEADLINE_S) is not None


# at a bad moment


def test_an_agent_goes_home_again_when_the_shard_it_fled_to_dies(
    start_redis: Any, make_shards: Any, stack: ExitStack
) -> None:
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    shards = make_shards(*(server.address for server in servers))
    agent = Agent(shards, 1)
    agent.step(11)
    agent.flush()
    servers[1].kill()
    agent.step(20)
    agent.flush()
    assert not is_at_home(agent)
    servers[1].start()
    servers[0].kill()
    agent.step(20)
    agent.flush()
    servers[0].start()
    wait_until(lambda: (agent.sender.flush_due(), agent.sender.metrics()["sender/kept_chunks_count"] == 0)[-1])
    assert agent.sender.close()
    assert sum(steps_of(shards)) == 50
    assert agent.sender.metrics()["sender/dropped_chunks_total"] == 0


def test_trajectories_of_the_living_shard_while_the_other_one_cannot_say_what_was_consumed(
    start_redis: Any, make_shards: Any, stack: ExitStack
) -> None:
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    shards = make_shards(*(server.address for server in servers))
    agents = [Agent(shards, number) for number in range(2)]
    for agent in agents:
        agent.step(41)
        agent.flush()
    replay = make_replay(
        stack, make_shards(*(server.address for server in servers)), FIFOReplay, batch_size=2, trajectory_steps=5
    )
    replay.owner.claim()
    queues = replay.pointer_queue.queues
    wait_until(lambda: (replay.pointer_queue.enqueue_step(), all(len(queue) >= 4 for queue in queues))[-1])
    servers[1].kill()  # its chunks are here, the marks are not
    replay.start_threads()
    seen: set[int] = set()

    def learn(batches: int) -> None:
        for _ in range(batches):
            batch = replay.dequeue(DEADLINE_S)
            assert batch is not None
            seen.update(batch.reward.numpy().astype(int).ravel().tolist())
            replay.commit()

    learn(4)
    assert seen == set(range(40))
    servers[1].start()
    learn(4)
    assert seen == set(range(40)) | set(range(1_000_000, 1_000_040))


def test_the_steps_of_a_shard_that_is_not_followed_count_again_when_it_is_back(
    start_redis: Any, make_shards: Any, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.replay.stream.keeper._AWAY_INTERVAL_S", 0.2)
    servers = [start_redis(port=0, appendonly=True) for _ in range(3)]
    addresses = [server.address for server in servers]
    replay = make_replay(stack, make_shards(*addresses), shards=[0, 1])
    agents = [Agent(make_shards(*addresses), number) for number in range(3)]
    for agent in agents:
        agent.step(11)
        agent.flush()
    replay.start_threads()
    wait_until(lambda: replay.global_step == 30)
    servers[2].kill()
    wait_until(lambda: replay.owner._foreign[0].stream.client.is_away)
    assert replay.dequeue(DEADLINE_S) is not None
    servers[2].start()
    agents[2].step(10)
    agents[2].flush()
    wait_until(lambda: replay.global_step == 40)


def test_one_shard_at_its_memory_limit(start_redis: Any, make_shards: Any, stack: ExitStack) -> None:
    servers = [start_redis(port=0, maxmemory="6mb"), start_redis(port=0)]
    addresses = [server.address for server in servers]
    full, other = (
        Agent(make_shards(*addresses), number, chunk_steps=100, wait_timeout_s=0.5, max_stream_bytes=1 << 30)
        for number in range(2)
    )
    with pytest.raises(ReplayFullError):
        for _ in range(2000):
            full.step(100)
    assert steps_of(make_shards(*addresses))[0] > 1000
    with servers[0].client() as client:
        assert not list(client.scan_iter(match="*staged*")), "what was refused leaves nothing behind"
    other.step(101)
    other.flush()
    replay = make_replay(stack, make_shards(*addresses), capacity=1000)
    replay.start_threads()
    wait_until(lambda: 0 < len(replay) <= 1000)
    full.sender._push.keywords["timeout_s"] = DEADLINE_S
    full.step(3000)
    full.flush()
    assert replay.dequeue(DEADLINE_S) is not None
    wait_until(lambda: abs(replay.global_step - (full.next - 1 + 100)) <= 1)


def test_a_chunk_that_the_limiter_refuses_leaves_nothing(redis_server: Any, make_shards: Any, stack: ExitStack) -> None:
    shards = make_shards(redis_server.address, num_shards=2)
    limits = {"samples_per_insert": 1.0, "samples_per_insert_tolerance": 40.0}
    fill(make_replay(stack, shards, start_size=20, **limits), 0)
    agent = Agent(shards, 0, is_limited=True, wait_timeout_s=0.3, chunk_steps=1000)
    agent.step(500)
    with pytest.raises(ReplayFullError):
        agent.flush()
    redis = shards.clients[0].redis
    assert not [key for kind in ("staged", "block") for key in redis.scan_iter(match=f"*{shards.run}*{kind}*")]


def test_fresh_trajectories_survive_a_shard_that_dies(start_redis: Any, make_shards: Any, stack: ExitStack) -> None:
    """Only replayed ones are sampled again; fresh ones of the dead shard wait for it."""
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    addresses = [server.address for server in servers]
    options = {"batch_size": 2, "trajectory_steps": 5, "replay_ratio": 4.0, "max_version_lag": None}
    replay = make_replay(
        stack, make_shards(*addresses), MixedTrajectoryReplay, observations="remote", capacity=10_000, **options
    )
    agents = [Agent(make_shards(*addresses), number) for number in range(2)]
    fresh: list[int] = []

    def learn(until: Callable[[], bool]) -> None:
        """Draw batches, and note the steps that are on-policy."""

        def is_done() -> bool:
            batch = replay.dequeue(0.05)
            if batch is not None:
                fresh.extend(batch.obs[:-1, :2, 0].T.ravel().int().tolist())
            return until()

        wait_until(is_done)

    replay.start_threads()
    for agent in agents:
        agent.step(101)
        agent.flush()
    learn(lambda: len(fresh) >= 50)
    servers[1].kill()
    learn(lambda: replay.metrics()["replay/shards_away_count"] == 1)
    agents[0].step(100)
    agents[0].flush()
    learn(lambda: set(range(195)) <= set(fresh))
    servers[1].start()
    learn(lambda: len(fresh) >= 200 + 100 - 10)
    assert len(fresh) == len(set(fresh)), "each is handed out once"
    assert replay.metrics()["replay/stale_trajectories_total"] == 0
