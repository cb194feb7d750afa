"""Several learners on one stream: one owns it, the others follow with algorithms, cursors and policies of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from naive_replay import (
    DEADLINE_S,
    NaiveReplay,
    Walker,
    assert_consistent,
    assert_same,
    contents,
    live,
    pump,
    settle,
    tick,
)

from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.listener import TorchListener
from surreal.learner import DQNLearner
from surreal.model import QFunction

STEPS = 300


def walk(run: Any, *, naives: tuple[NaiveReplay, ...], steps: int = STEPS, lookahead: int = 2) -> Any:
    """Send one walk, and let each naive replay remember it."""
    sender = run.sender(lookahead=lookahead, client=run.make_client())
    walker = Walker(naives[0])
    walker.walk(sender, steps)
    assert sender.close()
    for naive in naives[1:]:
        naive.episodes = naives[0].episodes
    return sender


@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_a_follower_has_returns_of_its_own_and_leaves_the_stream_alone(run: Any, observations: str) -> None:
    one, three = NaiveReplay(1, 0.5), NaiveReplay(3, 0.9)
    walk(run, naives=(one, three))
    owner = run.replay(capacity=10_000)
    follower = run.replay(n_step=3, gamma=0.9, is_owner=False, capacity=100, observations=observations)
    pump(follower, steps=STEPS)
    assert not run.client.redis.exists(run.client.shard_keys().lease), "a follower holds no lease"
    assert not run.client.redis.exists(run.client.shard_keys().credit), "a follower gives no credit"
    pump(owner, steps=STEPS)
    assert_same(contents(owner), one.transitions())
    expected = three.transitions()
    follower.store.observations.forget()
    kept = contents(follower)
    assert_same(kept, {name: expected[name] for name in sorted(expected)[-len(kept) :]})
    assert 60 < len(kept) <= 100
    assert_consistent(run, owner)
    assert follower.global_step == STEPS


def test_followers_come_and_go_while_another_owns_the_stream(run: Any) -> None:
    naive = NaiveReplay(1, 0.5)
    walk(run, naives=(naive,))
    owner = run.replay(capacity=120)
    pump(owner, steps=STEPS)
    settle(owner)
    for _ in range(3):
        follower = run.replay(is_owner=False)
        pump(follower, steps=len(owner))
        assert_same(contents(follower), contents(owner))
        follower.stop()
        assert follower.join(DEADLINE_S)
    tick(owner)
    assert owner.owner.is_owner
    assert live(run)[2] == len(owner)


def test_a_mirroring_follower_keeps_what_its_owner_evicts(run: Any) -> None:
    follower, naive = run.replay(is_owner=False), NaiveReplay(1, 0.5)
    walk(run, naives=(naive,))
    pump(follower, steps=STEPS)
    owner = run.replay(capacity=50)
    pump(owner, steps=STEPS)
    settle(owner)
    assert live(run)[2] <= 50
    assert_same(contents(follower), naive.transitions())


def test_a_followers_limiter_holds_the_learner_alone(run: Any) -> None:
    walk(run, naives=(NaiveReplay(1, 0.5),))
    follower = run.replay(
        is_owner=False, start_size=100, samples_per_insert=1.0, samples_per_insert_tolerance=40.0, prefetch=100
    )
    pump(follower, steps=STEPS)
    for _ in range(100):
        follower.step(timeout_s=0)
    # 300 steps, of which 100 are the start: at most 200 + 40 samples, in batches of 8.
    assert follower.num_samples == 240
    assert not run.client.redis.exists(run.client.shard_keys().credit)


def test_two_learners_improve_policies_of_their_own(run: Any) -> None:
    walk(run, naives=(NaiveReplay(1, 0.5),))
    for policy, options in (("default", {}), ("second", {"is_owner": False, "n_step": 3, "gamma": 0.9})):
        replay = run.replay(**options)
        model = QFunction(hiddens=[8], action_space=5, seed=0)
        learner = DQNLearner(model, replay)
        pump(replay, steps=STEPS)
        replay.start_threads()
        for i, batch in replay.batch_iterator():
            learner.optimize(i, batch)
            if i == 5:
                break
        broadcaster = TorchBroadcaster(run.client, model, policy=policy)
        broadcaster.broadcast()
        broadcaster.close()
    received = {}
    for policy in ("default", "second"):
        model = QFunction(hiddens=[8], action_space=5, seed=1)
        listener = TorchListener(run.client, model, policy=policy)
        assert listener.update_once()
        listener.close()
        received[policy] = model.tensors()
        assert listener.version == 1
    assert any(not torch.equal(a, received["second"][name]) for name, a in received["default"].items())
