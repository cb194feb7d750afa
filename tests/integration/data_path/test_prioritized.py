"""PrioritizedReplay on a real server: batches and weights, priorities from a learner's thread, and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from naive_replay import DEADLINE_S, NaiveReplay, Walker, assert_same, contents, make_obs, pump, wait_until

from surreal.agent import Agent, AgentLoop
from surreal.envs import LocalEnvPool
from surreal.model import QFunction
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
    assert replay.metrics()["replay/late_priorities_total"] == 0
    assert_same(contents(replay), walker.naive.transitions())


def test_initial_priorities_are_those_that_were_sent_and_nan_counts_as_the_largest(run: Any, make_replay: Any) -> None:
    sender = run.sender(lookahead=2, chunk_steps=7)
    replay = make_replay(n_step=3, priority_exponent=0.5, priority_epsilon=0.01, batch_size=64, start_size=60)
    rng, expected = np.random.default_rng(0), {}
    for name in range(60):
        # The largest comes first, since what counts is the largest so far.
        priority = 9.0 if name == 0 else float("nan") if name % 5 == 3 else float(rng.random() * 4)
        expected[name] = (9.0 if np.isnan(priority) else priority) + 0.01
        obs = [make_obs(name, is_dict=False), make_obs(name + 1, is_dict=False)]
        sender.send(obs, 0, 0.0, name % 10 == 9, extras={"priority": priority})
    assert sender.close()
    pump(replay, steps=60)
    got = named_priorities(replay)
    assert got.keys() == expected.keys()
    total = sum(priority**0.5 for priority in expected.values())
    for name, priority in expected.items():
        np.testing.assert_allclose(got[name], priority**0.5, rtol=1e-12)
    assert replay.metrics()["replay/refused_priorities_total"] == 12
    replay.start_threads()
    _, batch = next(replay.batch_iterator())
    drawn = [expected[name] for name in batch.obs[:, 0].int().tolist()]
    np.testing.assert_allclose(batch.sample_info.priority, drawn, rtol=1e-9)
    np.testing.assert_allclose(batch.sample_info.probability, np.sqrt(drawn) / total, rtol=1e-9)


class AheadAgent(Agent):
    """Sends by how much its best action is ahead as the initial priority."""

    def __init__(self) -> None:
        super().__init__(QFunction((8,), action_space=2, seed=0))
        self.sent: dict[bytes, float] = {}

    def _act(self, obs: Any, explore: np.ndarray[Any, Any]) -> Any:
        q = self.model(obs)
        priority = q.amax(dim=1) - q.mean(dim=1)
        for row, number in zip(obs, priority, strict=True):
            self.sent[row.numpy().tobytes()] = float(number)
        return q.argmax(dim=1), {"priority": priority}


def test_an_agent_sends_initial_priorities_through_its_loop(run: Any, make_replay: Any) -> None:
    pool, agent = LocalEnvPool([lambda: gymnasium.make("CartPole-v1")] * 3, seed=0), AheadAgent()
    sender = run.sender(lookahead=2)
    loop = AgentLoop(pool, agent, sender)
    while loop.episodes < 6:
        loop.step()
    assert sender.close()
    pool.close()
    replay = make_replay(n_step=3, priority_exponent=0.5, priority_epsilon=0.01)
    pump(replay, steps=int(sender.metrics()["sender/steps_total"]))
    assert replay.store is not None
    assert replay._tree is not None
    alive = np.arange(replay.alive.start, replay.alive.stop)
    obs = replay.store.gather(alive, np.ones(len(alive))).obs[0]
    expected = [(agent.sent[row.tobytes()] + 0.01) ** 0.5 for row in obs]
    assert len(set(expected)) > 30
    np.testing.assert_allclose(replay._tree.leaves[: len(alive)], expected, rtol=1e-6)


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
    assert replay.metrics()["replay/late_priorities_total"] == 8
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
    replay.supervisor.stop()
    assert replay.supervisor.join(DEADLINE_S)
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
