"""SIGKILL of a learner at any moment: Redis holds no orphan and no dangling pointer, and the next learner has it all.

The learners are real processes; the agents' senders live on in the test. After each kill the stream is read naively,
and a new replay is compared with that.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kill_processes import Killable, killable, learn_fifo, learn_prioritized
from naive_replay import (
    DEADLINE_S,
    NaiveReplay,
    Pool,
    Transition,
    Walker,
    assert_same,
    contents,
    in_thread,
    names_of,
    pump,
)

from surreal.distributed.experience.codec import Chunk, Contract, decode, split
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.replay import FIFOReplay, PrioritizedReplay
from surreal.replay.store.priorities import read_priorities
from surreal.replay.trajectories.ledger import from_mark

ALPHA, GAMMA, N_STEP = 0.6, 0.5, 3
OPTIONS = {
    "batch_size": 16, "capacity": 1000, "start_size": 200, "gamma": GAMMA, "n_step": N_STEP, "prefetch": 2,
    "lease_s": 0.3, "priority_exponent": ALPHA,
}  # fmt: skip


# -- what is in Redis ------------------------------------------------------------------------------------------------


def read_stream(run: Any, shard: int = 0, num_shards: int = 1) -> list[Chunk]:
    """Every chunk of the stream, in order; each entry has its block, each block its entry, and the counts are right."""
    stream = ReplayShards(run.client, num_shards).streams()[shard]
    redis, keys = run.client.redis, stream.keys
    entries = stream.read(b"0-0", 1_000_000, None)
    prefix = keys.block_prefix.encode()
    blocks = {key[len(prefix) :].decode() for key in redis.scan_iter(match=_literal(prefix) + b"*", count=1000)}
    assert blocks == {entry.chunk_id for entry in entries}, "an orphan block, or a dangling pointer"
    assert len(blocks) == len(entries)
    contract_bytes = stream.contract()
    assert contract_bytes is not None
    contract = Contract.from_bytes(contract_bytes)
    chunks = []
    for entry in entries:
        content: Any = redis.get(keys.block(entry.chunk_id))
        chunk = decode(contract, entry.head, *split(entry.head, content))
        chunk.entry_id, chunk.chunk_id = entry.entry_id, entry.chunk_id
        chunks.append(chunk)
    steps, stored = (int(count) for count in redis.hmget(keys.meta, "live_steps", "live_bytes"))
    assert steps == sum(chunk.own_steps for chunk in chunks)
    assert stored == sum(chunk.stored_bytes for chunk in chunks)
    marked = {field[len(b"done:") :] for field in redis.hkeys(keys.meta) if field.startswith(b"done:")}
    assert marked <= {entry.entry_id for entry in entries}, "a mark without its chunk"
    return chunks


def _literal(pattern: bytes) -> bytes:
    return pattern.replace(b"{", b"[{]")


def naive_transitions(chunk: Chunk) -> list[tuple[int, Transition]]:
    """Names and transitions of the steps that a chunk owns, one by one."""
    names = names_of(chunk.leaves)
    rows, reward, found = chunk.obs_row.tolist(), chunk.columns["reward"].tolist(), []
    for step in chunk.own.tolist():
        total, last = 0.0, step
        for k in range(N_STEP):
            if step + k >= len(rows) or rows[step + k] != rows[step] + k:
                break
            total, last = total + GAMMA**k * reward[step + k], step + k
        discount = 0.0 if chunk.terminated[last] else GAMMA ** (last - step + 1)
        action, version = chunk.columns["action"][step], chunk.columns["version"][step]
        transition = Transition(int(action), total, discount, names[rows[last] + 1], int(version))
        found.append((names[rows[step]], transition))
    return found


# -- a window ----------------------------------------------------------------------------------------------------------


class Agents:
    """Two senders that go on and on, with chunks of different sizes."""

    def __init__(self, run: Any, num_shards: int = 1) -> None:
        self.walkers = [Walker(NaiveReplay(N_STEP, GAMMA), begin=i * 10_000_000, seed=i) for i in range(2)]
        options = {"lookahead": N_STEP - 1, "wait_timeout_s": DEADLINE_S}
        self.senders: list[ExpSender] = [
            run.sender(
                client=ReplayShards(run.make_client(), num_shards), shard=i % num_shards, chunk_steps=size, **options
            )
            for i, size in enumerate((24, 7))
        ]

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Let them act; at the end everything is acknowledged."""
        stop = threading.Event()

        def act() -> None:
            while not stop.wait(0.001):
                for walker, sender in zip(self.walkers, self.senders, strict=True):
                    walker.walk(sender, 12)
            for sender in self.senders:
                sender.flush()

        with in_thread(act):
            try:
                yield
            finally:
                stop.set()

    def transitions(self) -> dict[int, Transition]:
        return {name: found for walker in self.walkers for name, found in walker.naive.transitions().items()}


def assert_rebuilt(run: Any, path: Path, expected: dict[int, Transition]) -> int:
    """A new replay has what is in Redis, in that order, with the priorities that were saved last.

    Returns:
        How many of them were saved; what is newer has the largest.
    """
    chunks = read_stream(run)
    naive = [named for chunk in chunks for named in naive_transitions(chunk)]
    options = OPTIONS | {"capacity": len(naive) + 1}
    replay = PrioritizedReplay(run.make_client(), **options)
    run.replays.append(replay)
    replay.load_priorities(path)
    pump(replay, steps=len(naive))
    got = contents(replay)
    assert list(got) == [name for name, _ in naive]
    assert_same(got, dict(naive))
    assert_same(got, {name: expected[name] for name in got})
    assert len(got) >= OPTIONS["start_size"]

    saved = read_priorities(path, exponent=ALPHA)
    assert saved.max_leaf > 1.0
    wanted = [saved.chunks.get(chunk.chunk_id, np.full(chunk.own_steps, saved.max_leaf)) for chunk in chunks]
    assert replay._tree is not None
    places = np.arange(replay.alive.start, replay.alive.stop) % replay._tree.capacity
    np.testing.assert_array_equal(replay._tree.leaves[places], np.concatenate(wanted))
    replay.stop()
    assert replay.join(DEADLINE_S)
    return int(replay.metrics()["replay/restored_priorities_total"])


def kill_once(run: Any, agents: Agents, path: Path, moment: str | None, delay_s: float = 0.0) -> int:
    args = (run.address, run.run_id, path, moment, OPTIONS)
    with killable(learn_prioritized, *args) as learner, agents.acting():
        learner.expect("busy")
        if moment is None:
            threading.Event().wait(delay_s)
        else:
            learner.expect("stopped short")
        learner.kill()
    return assert_rebuilt(run, path, agents.transitions())


@pytest.mark.parametrize("place", ["insert", "evict", "sample", "aggregate", "update", "tick", "save"])
def test_a_learner_killed_inside_of_what_it_does(run: Any, tmp_path: Path, place: str) -> None:
    agents, path = Agents(run), tmp_path / "priorities.safetensors"
    assert sum(kill_once(run, agents, path, f"{when} {place}") for when in ("before", "after")) > 0


def test_a_learner_killed_again_and_again_at_any_time(run: Any, tmp_path: Path) -> None:
    agents, path, rng = Agents(run), tmp_path / "priorities.safetensors", random.Random(0)
    assert sum(kill_once(run, agents, path, None, rng.uniform(0.0, 0.03)) for _ in range(10)) > 0


@pytest.mark.parametrize("moment", ["before evict", "before tick", "after tick", None])
def test_a_learner_killed_that_has_two_shards(run: Any, tmp_path: Path, moment: str | None) -> None:
    agents, path = Agents(run, num_shards=2), tmp_path / "priorities.safetensors"
    options = OPTIONS | {"num_shards": 2}
    with killable(learn_prioritized, run.address, run.run_id, path, moment, options) as learner, agents.acting():
        learner.expect("busy")
        if moment is not None:
            learner.expect("stopped short")
        learner.kill()
    shards = [read_stream(run, shard, 2) for shard in range(2)]
    assert all(shards), "both have chunks"
    naive = dict(named for chunks in shards for chunk in chunks for named in naive_transitions(chunk))
    replay = PrioritizedReplay(ReplayShards(run.make_client(), 2), **OPTIONS | {"capacity": len(naive) + 1})
    run.replays.append(replay)
    replay.load_priorities(path)
    pump(replay, steps=len(naive))
    got = contents(replay)
    assert_same(got, naive)
    expected = agents.transitions()
    assert_same(got, {name: expected[name] for name in got})
    assert replay.metrics()["replay/restored_priorities_total"] > 0


# -- a stream that is consumed -----------------------------------------------------------------------------------------

FIFO_OPTIONS = {"batch_size": 2, "trajectory_steps": 7, "gamma": GAMMA, "lease_s": 0.3, "piece_timeout_s": None}


class Lanes:
    """A pool whose sender goes on and on; knows the order of the steps of each environment."""

    def __init__(self, run: Any) -> None:
        self.pool = Pool(3, 1, GAMMA, is_dict=False)
        self.sender: ExpSender = run.sender(client=run.make_client(), chunk_steps=20, wait_timeout_s=DEADLINE_S)

    @contextmanager
    def acting(self) -> Iterator[None]:
        stop = threading.Event()

        def act() -> None:
            while not stop.wait(0.002):
                self.sender.send_batch(*self.pool.recv())
            self.sender.flush()

        with in_thread(act):
            try:
                yield
            finally:
                stop.set()

    def orders(self) -> list[list[int]]:
        return [[step[0] for episode in naive.episodes for step in episode] for naive in self.pool.naives]


def uncommitted(run: Any) -> set[int]:
    """Names of the steps in Redis that nobody has committed."""
    marks, found = Stream(run.client).marks(), set()
    for chunk in read_stream(run):
        names = np.array(names_of(chunk.leaves))[chunk.obs_row[chunk.own]]
        found |= set(names[~from_mark(marks.get(chunk.entry_id), chunk.own_steps)].tolist())
    return found


def delivered_by(learner: Killable, said: list[Any]) -> list[list[int]]:
    return [trajectory for batch in [*said, *learner.kill()] if isinstance(batch, list) for trajectory in batch]


MOMENTS = [
    f"{when} fifo {place}"
    for place in ("insert", "batch", "gather", "settle", "commit")
    for when in ("before", "after")
]


@pytest.mark.parametrize(
    "moments", [MOMENTS, ["before tick", "after tick"] * 3, [None] * 10], ids=["hooks", "ticks", "any"]
)
def test_a_consuming_learner_killed_loses_nothing_and_repeats_nothing_committed(
    run: Any, moments: list[str | None]
) -> None:
    lanes, rng = Lanes(run), random.Random(1)
    left: set[int] | None = None  # what was not committed when the last learner died
    ever: set[int] = set()
    sent: set[int] = set()
    for moment in moments:
        with killable(learn_fifo, run.address, run.run_id, moment, FIFO_OPTIONS) as learner, lanes.acting():
            said = learner.expect("busy")
            if moment is None:
                threading.Event().wait(rng.uniform(0.0, 0.03))
            else:
                said += learner.expect("stopped short")
            found = delivered_by(learner, said)
        before, sent = sent, {name for lane in lanes.orders() for name in lane}
        assert_in_order(found, lanes.orders())
        steps = {name for trajectory in found for name in trajectory}
        assert sum(map(len, found)) == len(steps), "handed out twice by one learner"
        if left is not None:
            assert not steps & (before - left), "handed out again though it was committed"
        ever |= steps
        left = uncommitted(run)
        assert sent - left <= ever, "removed, or marked as used, but never handed out"
    assert left is not None and len(sent - left) > 100, "much was committed"
    replay = FIFOReplay(run.make_client(), **FIFO_OPTIONS | {"batch_size": 1})
    run.replays.append(replay)
    rest = drain(run, replay)
    assert {name for trajectory in rest for name in trajectory} == left
    assert_in_order(rest, lanes.orders())


def assert_in_order(found: list[list[int]], orders: list[list[int]]) -> None:
    """Trajectories of a lane follow one another without a gap."""
    lane_of = {name: i for i, lane in enumerate(orders) for name in lane}
    got: dict[int, list[int]] = {}
    for trajectory in found:
        got.setdefault(lane_of[trajectory[0]], []).extend(trajectory)
    for i, names in got.items():
        first = orders[i].index(names[0])
        assert names == orders[i][first : first + len(names)]


def drain(run: Any, replay: FIFOReplay) -> list[list[int]]:
    """All that is left, the open trajectories filled up."""
    pump(replay, steps=sum(chunk.own_steps for chunk in read_stream(run)))
    replay._break_off(np.inf)
    found: list[list[int]] = []
    while replay.step(timeout_s=0.0) or len(replay.fetcher_queue):
        batch = replay.dequeue(timeout_s=0.0)
        if batch is not None:
            is_step = batch.mask.numpy()[:, 0] > 0
            found.append(np.array(names_of([batch.obs[:-1, 0].numpy()]))[is_step].tolist())
    return found
