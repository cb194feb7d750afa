"""MixedTrajectoryReplay on a real Redis: fresh trajectories once and in order, others beside them from all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from naive_replay import Pool, names_of, pump

from surreal.base.types import TrajectoryBatch
from surreal.replay import MixedTrajectoryReplay

ROWS = 6
Make = Callable[..., MixedTrajectoryReplay]


@pytest.fixture
def make_mixed(run: Any) -> Make:
    def make(**options: Any) -> MixedTrajectoryReplay:
        defaults = {"batch_size": 2, "trajectory_steps": ROWS, "replay_ratio": 1.5, "max_version_lag": None}
        options = defaults | {"start_size": 20, "capacity": 10_000, "gamma": 0.5, "seed": 0} | options
        run.replays.append(MixedTrajectoryReplay(run.client, **options))
        made: MixedTrajectoryReplay = run.replays[-1]
        return made

    return make


def feed(run: Any, replay: MixedTrajectoryReplay, pool: Pool, turns: int) -> None:
    sender = run.sender(chunk_steps=11) if not run.senders else run.senders[0]
    for _ in range(turns):
        sender.send_batch(*pool.recv())
    sender.flush()

    pump(replay, steps=int(sender.metrics()["sender/steps_total"]))


def drain(replay: MixedTrajectoryReplay) -> list[TrajectoryBatch]:
    """All batches that can be made now."""
    found = []
    while True:
        replay.step(timeout_s=0.0)
        batch = replay.dequeue(0.001)
        if batch is None:
            return found
        found.append(batch)


def columns_of(batch: TrajectoryBatch, *, is_on_policy: bool) -> list[list[int]]:
    """Names of the steps of each trajectory of one part."""
    part = batch.extras["is_on_policy"].numpy()
    assert (part == part[:1]).all(), "a trajectory is of one part"
    names = np.array([names_of([row.numpy()]) for row in batch.obs[:-1]])
    mask = batch.mask.numpy() > 0
    return [names[mask[:, b], b].tolist() for b in range(mask.shape[1]) if part[0, b] == is_on_policy]


def orders(pool: Pool) -> list[list[int]]:
    """The steps of each environment, in order."""
    return [[step[0] for episode in naive.episodes for step in episode] for naive in pool.naives]


def test_each_step_is_on_policy_once_and_in_order(run: Any, make_mixed: Make) -> None:
    replay, pool = make_mixed(), Pool(3, 1, 0.5, is_dict=False)
    batches = []
    for _ in range(6):
        feed(run, replay, pool, 30)
        batches += drain(replay)
    lanes = orders(pool)
    lane_of = {name: i for i, lane in enumerate(lanes) for name in lane}
    got: list[list[int]] = [[] for _ in lanes]
    for batch in batches:
        assert batch.mask.shape[0] >= ROWS
        assert batch.mask.shape[1] == 5
        fresh = columns_of(batch, is_on_policy=True)
        assert len(fresh) == 2
        for names in fresh:
            got[lane_of[names[0]]] += names
    assert len(batches) > 10
    for ours, lane in zip(got, lanes, strict=True):
        assert ours == lane[: len(ours)]
        assert len(lane) - len(ours) < 4 * ROWS  # what is open, or the rest of a batch, or unsent


def test_the_other_part_is_of_all_steps_and_follows_its_lane(run: Any, make_mixed: Make) -> None:
    replay, pool = make_mixed(batch_size=1, replay_ratio=19.0), Pool(2, 1, 0.5, is_dict=False)
    batches = []
    for _ in range(4):
        feed(run, replay, pool, 40)
        batches += drain(replay)
    lanes = orders(pool)
    place_of = {name: (i, k) for i, lane in enumerate(lanes) for k, name in enumerate(lane)}
    replayed = [names for batch in batches for names in columns_of(batch, is_on_policy=False)]
    assert len(replayed) == 19 * len(batches)
    for names in replayed:
        lane, place = place_of[names[0]]
        assert names == lanes[lane][place : place + len(names)]
    last = columns_of(batches[-1], is_on_policy=False)
    assert min(place_of[names[0]][1] for names in last) < 40, "old ones are among them"


def test_what_lags_too_far_behind_is_not_on_policy(run: Any, make_mixed: Make) -> None:
    replay, pool = make_mixed(max_version_lag=40), Pool(3, 1, 0.5, is_dict=False)
    feed(run, replay, pool, 200)
    for batch in drain(replay):
        is_fresh = batch.extras["is_on_policy"] & (batch.mask > 0)
        assert int(batch.version[is_fresh].min()) >= 200 - 40
    stale = replay.metrics()["replay/stale_trajectories_total"]
    assert stale > 0
    feed(run, replay, pool, 20)
    replay.commit(version=1000)
    assert drain(replay)[1:] == [], "but for the batch made ahead, nothing is fresh any more"
    assert replay.metrics()["replay/stale_trajectories_total"] > stale


def test_trajectories_that_were_evicted_before_their_turn_are_dropped(run: Any, make_mixed: Make) -> None:
    replay, pool = make_mixed(capacity=60), Pool(3, 1, 0.5, is_dict=False)
    feed(run, replay, pool, 200)
    for batch in drain(replay):
        assert (batch.sample_info.generation >= replay.alive.start - 60).all()
    assert replay.metrics()["replay/stale_trajectories_total"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples_per_insert": 1.0}, "samples_per_insert is 1.0, but a batch waits for fresh trajectories"),
        ({"n_step": 3}, "n_step is 3"),
        ({"replay_ratio": -1.0}, "replay_ratio is -1.0; it must be >= 0"),
        ({"batch_size": 0}, "batch_size is 0; it must be >= 1"),
        ({"capacity": 20, "trajectory_steps": 16}, "must fit into capacity, 20"),
        ({"max_version_lag": -1}, "max_version_lag is -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(make_mixed: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_mixed(**options)


def test_without_replayed_ones_a_batch_is_fresh_alone(run: Any, make_mixed: Make) -> None:
    replay, pool = make_mixed(replay_ratio=0.0), Pool(3, 1, 0.5, is_dict=False)
    feed(run, replay, pool, 60)
    first, *_ = drain(replay)
    assert first.mask.shape[0] >= ROWS
    assert first.mask.shape[1] == 2
    assert first.extras["is_on_policy"].all()
