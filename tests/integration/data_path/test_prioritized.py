"""PrioritizedReplay on a real server: batches and weights, priorities from a learner's thread, and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_replay import DEADLINE_S, NaiveReplay, Walker, assert_same, contents, pump, wait_until

from surreal.replay import PrioritizedReplay


@pytest.fixture
def make_replay(run: Any) -> Any:
    """Make a prioritized replay of the test's run."""

    def make(**options: Any) -> PrioritizedReplay:
        defaults = {"batch_size": 8, "capacity": 100_000, "start_size": 1, "gamma": 0.5, "prefetch": 1, "seed": 1}
        run.replays.append(PrioritizedReplay(run.make_client(), **defaults | options))
        return run.replays[-1]

    return make


def named_priorities(replay: PrioritizedReplay) -> dict[int, float]:
    """The leaf of each transition, by the name of its observation."""
    assert replay._tree is not None
    leaves = replay._tree.leaves
    places = np.arange(replay.alive.start, replay.alive.stop) % len(leaves)
    return dict(zip(contents(replay), leaves[places].tolist(), strict=True))


def test_the_learner_steers_what_is_drawn(run: Any, make_replay: Any) -> None:
    sender, replay = run.sender(), make_replay(batch_size=32, priority_exponent=1.0)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 200)
    sender.flush()
    replay.start_threads()
    drawn: list[int] = []
    for i, batch in replay.batch_iterator():
        assert 0 < batch.extras["weight"].min() <= batch.extras["weight"].max() == 1
        names = batch.obs[:, 0].numpy()
        # Only multiples of ten are worth seeing again.
        replay.update_priorities(batch.sample_info, np.where(names % 10 == 0, 1.0, 0.0))
        drawn = [*drawn, *names.astype(int).tolist()][-1000:]
        if i >= 200:
            break
    assert sum(name % 10 == 0 for name in drawn) > 950
    assert replay.metrics()["replay/late_priorities"] == 0
    assert_same(contents(replay), walker.naive.transitions())


def test_priorities_for_what_was_evicted_are_late(run: Any, make_replay: Any) -> None:
    sender, replay = run.sender(), make_replay(capacity=60)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 50)
    sender.flush()
    pump(replay, steps=50)
    replay.step()
    batch = replay.dequeue(0.0)
    assert batch is not None
    walker.walk(sender, 100)
    sender.flush()
    pump(replay, steps=150)
    replay.update_priorities(batch.sample_info, np.full(8, 1000.0))
    replay.step()
    replay.dequeue(0.0)
    replay.step()
    assert replay.metrics()["replay/late_priorities"] == 8
    assert max(named_priorities(replay).values()) == 1.0


def test_a_learner_that_was_killed_has_the_saved_priorities_again(run: Any, make_replay: Any, tmp_path: Path) -> None:
    path = tmp_path / "priorities.safetensors"
    sender, replay = run.sender(), make_replay(capacity=150, lease_s=0.2)
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 200)
    sender.flush()
    replay.start_threads()
    rng = np.random.default_rng(0)
    for i, batch in replay.batch_iterator():
        replay.update_priorities(batch.sample_info, rng.random(8) * 3)
        if i >= 40:
            break
    wait_until(lambda: not replay.owner.num_pending)
    replay.save_priorities(path)  # while its threads work
    # As if killed: the lease stays where it is.
    replay._supervisor.stop()
    assert replay._supervisor.join(DEADLINE_S)
    replay._apply_updates()
    saved_from = named_priorities(replay)
    replay.save_priorities(path)
    walker.walk(sender, 30)
    sender.flush()

    rebuilt = make_replay(capacity=200)
    rebuilt.load_priorities(path)
    known = len(saved_from)
    pump(rebuilt, steps=known + 30)
    got = named_priorities(rebuilt)
    assert list(got)[:known] == list(saved_from), "the order is that of the stream"
    assert list(got.values())[:known] == list(saved_from.values())
    assert len(set(saved_from.values())) > 20
    assert set(list(got.values())[known:]) == {rebuilt._max_leaf} == {replay._max_leaf}
    expected = walker.naive.transitions()
    assert_same(contents(rebuilt), {name: expected[name] for name in list(expected)[-len(got) :]})
