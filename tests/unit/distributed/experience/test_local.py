"""A shard in this process: sender and replay work on it as on one in Redis."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import FIFOReplay, Replay, UniformReplay

ENVS = 2


def rows(step: int) -> StepBatch:
    """Rows of endless episodes; each observation says its step."""
    kind = np.full(ENVS, StepKind.FIRST if step == 0 else StepKind.MID, np.uint8)
    return StepBatch(
        obs=np.full((ENVS, 3), step, np.float32),
        env_ids=np.arange(ENVS),
        kind=kind,
        num_last=0,
        reward=np.full(ENVS, step, np.float32),
        terminated=np.zeros(ENVS, np.bool_),
        truncated=np.zeros(ENVS, np.bool_),
        explore=np.ones(ENVS, np.bool_),
        record=np.ones(ENVS, np.bool_),
        closed_ids=np.zeros(0, np.int64),
        info={},
    )


def act(sender: ExpSender, steps: range, version: int = 1) -> None:
    for step in steps:
        sender.send_batch(rows(step), Action(np.zeros(ENVS, np.int64), {}, version))
    sender.flush()


def take_in(replay: Replay[Any]) -> None:
    replay.owner.refresh()
    while replay.pointer_queue.enqueue_step(waits=False):
        while len(replay.pointer_queue) and replay.step(0.0):
            pass


def test_transitions_are_sampled_and_the_oldest_leave() -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, chunk_steps=8)
    replay = UniformReplay(shards, batch_size=4, capacity=32, start_size=8, prefetch=1, observations="mirrored", seed=0)
    act(sender, range(33))
    take_in(replay)
    assert replay.global_step == sender.global_step == 64
    assert 32 - 8 < len(replay) <= 32
    replay.step(0.0)
    batch = replay.dequeue(0.0)
    assert batch is not None
    assert (batch.next_obs - batch.obs == 1).all()
    replay.owner.refresh()
    assert shards.local.counts().live_steps <= 40  # what left the replay left the stream
    assert replay.join()


def test_trajectories_are_consumed_in_order_and_each_once() -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, chunk_steps=8)
    replay = FIFOReplay(shards, batch_size=ENVS, trajectory_steps=4, piece_timeout_s=None, lease_s=1e9)
    first = []
    for turn in range(3):
        act(sender, range(4 * turn, 4 * turn + 5) if turn == 0 else range(4 * turn + 1, 4 * turn + 5), version=turn)
        take_in(replay)
        while len(replay.fetcher_queue) or replay.step(0.0):
            batch = replay.dequeue(0.0)
            assert batch is not None
            first.append(batch.obs[0, :, 0].tolist())
            replay.commit()
    assert first == [[0.0, 0.0], [4.0, 4.0], [8.0, 8.0]]
    replay.step(0.0)
    replay.owner.refresh()
    assert shards.local.counts().live_steps < 8
    assert replay.join()


def test_a_stream_that_holds_its_bound_takes_no_more_until_its_owner_lets_go() -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, chunk_steps=4, on_full="drop", max_stream_bytes=200)
    act(sender, range(20))
    assert sender.metrics()["sender/dropped_steps_total"] > 0
    assert shards.local.counts().live_bytes <= 200


def test_agents_hear_how_far_the_whole_run_is() -> None:
    shards = LocalShards("test")
    sender = ExpSender(shards, chunk_steps=8)
    act(sender, range(5))
    assert sender.global_step == 8
    shards.local.run_steps = 1000
    act(sender, range(5, 9))
    assert sender.global_step == 1000
