"""The pool alone: events in, batches out."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.types import StepKind
from surreal.rlx.pool.batches import CutEvent, LastEvent, LiveEvent
from surreal.rlx.pool.pool import RlxEnvPool

SPACE = spaces.Box(-9, 9, (2,), np.float32)


class Server:
    """What the pool hands back."""

    def __init__(self, pool: RlxEnvPool) -> None:
        self.actions: list[tuple[Any, Any]] = []
        self.released: list[int] = []
        pool.bind(self.actions.extend, self.released.extend)


def make_pool(action_space: Any = None, **options: Any) -> tuple[RlxEnvPool, Server]:
    pool = RlxEnvPool(action_space or spaces.Discrete(3), SPACE, **options)
    return pool, Server(pool)


def live(
    slot: int, value: float = 0.0, reward: float = 0.0, *, first: bool = False, exploit: bool = False
) -> LiveEvent:
    return LiveEvent(slot, f"session {slot}", [np.full(2, value, np.float32)], reward, first, exploit)


def last(slot: int, value: float, reward: float, *, terminated: bool = True) -> LastEvent:
    return LastEvent(slot, [np.full(2, value, np.float32)], reward, terminated, False, 5.0, 3)


def act(pool: RlxEnvPool, batch: Any) -> None:
    ids = batch.env_ids[batch.num_last :]
    pool.send(ids % 3, ids)


def test_waiting_sessions_make_a_batch_and_get_their_actions() -> None:
    pool, server = make_pool()
    pool.put([live(0, 1, first=True), live(4, 2, first=True, exploit=True)])
    batch = pool.recv(1.0)
    assert batch.env_ids.tolist() == [0, 4]
    assert batch.kind.tolist() == [StepKind.FIRST, StepKind.FIRST]
    assert batch.obs.tolist() == [[1, 1], [2, 2]]
    assert batch.explore.tolist() == batch.record.tolist() == [True, False]
    assert batch.obs.dtype == np.float32
    pool.send(np.array([2, 1]), batch.env_ids)
    assert server.actions == [("session 0", 2), ("session 4", 1)]
    assert type(server.actions[0][1]) is int
    assert pool.num_envs == 5


def test_ends_come_first_with_return_and_length() -> None:
    pool, _ = make_pool()
    pool.put([live(0, 1, first=True), live(1, 1, first=True)])
    act(pool, pool.recv(1.0))
    pool.put([live(1, 2, 0.5), last(0, 3, 1.0), live(0, 4, first=True)])
    batch = pool.recv(1.0)
    assert batch.num_last == 1
    assert batch.env_ids.tolist() == [0, 1, 0]
    assert batch.kind.tolist() == [StepKind.LAST, StepKind.MID, StepKind.FIRST]
    assert batch.obs[:, 0].tolist() == [3, 2, 4]
    assert batch.reward.tolist() == [1.0, 0.5, 0.0]
    assert batch.terminated.tolist() == [True, False, False]
    assert not batch.truncated.any()
    np.testing.assert_array_equal(batch.info["episode_return"], [5.0, np.nan, np.nan])
    assert batch.info["episode_length"].tolist() == [3, 0, 0]
    assert pool.metrics()["env/episode_return_recent"] == 5.0


def test_time_limit_is_truncated_and_not_terminated() -> None:
    pool, _ = make_pool()
    pool.put([last(0, 3, 1.0, terminated=False)])
    batch = pool.recv(1.0)
    assert (batch.terminated.tolist(), batch.truncated.tolist()) == ([False], [True])


def test_nothing_ready_is_an_empty_batch() -> None:
    pool, _ = make_pool()
    batch = pool.recv(0.01)
    assert len(batch.env_ids) == 0
    assert batch.obs.shape == (0, 2)


def test_given_up_episode_is_closed_before_the_next_one_begins() -> None:
    pool, server = make_pool()
    pool.put([live(0, 1, first=True)])
    act(pool, pool.recv(1.0))
    pool.put([CutEvent(0, has_episode=True, is_gone=False), live(0, 2, first=True)])
    batch = pool.recv(1.0)
    assert batch.closed_ids.tolist() == [0]
    assert batch.kind.tolist() == [StepKind.FIRST]
    assert server.released == []


def test_session_gone_while_it_waits_ends_in_the_state_it_sent() -> None:
    pool, server = make_pool()
    pool.put([live(0, 1, first=True)])
    act(pool, pool.recv(1.0))
    pool.put([live(0, 2, 0.5), CutEvent(0, has_episode=True, is_gone=True)])
    batch = pool.recv(1.0)
    assert batch.kind.tolist() == [StepKind.LAST]
    assert batch.truncated.tolist() == [True]
    assert batch.obs.tolist() == [[2, 2]]
    assert np.isnan(batch.info["episode_return"]).all()
    assert batch.closed_ids.tolist() == []
    assert server.released == [0]
    assert pool.metrics()["env/episodes_total"] == 0


def test_session_gone_before_its_first_action_leaves_nothing() -> None:
    pool, server = make_pool()
    pool.put([live(0, 1, first=True), CutEvent(0, has_episode=True, is_gone=True)])
    batch = pool.recv(1.0)
    assert len(batch.env_ids) == len(batch.closed_ids) == 0
    assert server.released == [0]


def test_session_gone_while_the_agent_acts_is_closed_after_that() -> None:
    pool, server = make_pool()
    pool.put([live(0, 1, first=True)])
    batch = pool.recv(1.0)
    pool.put([CutEvent(0, has_episode=True, is_gone=True)])
    assert len(pool.recv(0.01).closed_ids) == 0
    assert server.released == []
    act(pool, batch)
    assert pool.recv(0.01).closed_ids.tolist() == [0]
    assert server.released == [0]


def test_session_gone_between_episodes_only_gives_its_slot_back() -> None:
    pool, server = make_pool()
    pool.put([last(0, 3, 1.0), CutEvent(0, has_episode=False, is_gone=True)])
    batch = pool.recv(1.0)
    assert batch.num_last == 1
    assert len(batch.closed_ids) == 0
    assert server.released == [0]


def test_nobody_waits_for_others_when_all_wait() -> None:
    pool, _ = make_pool(gather_window_s=60.0)
    pool.put([live(0, first=True), live(1, first=True)])
    assert len(pool.recv(1.0).env_ids) == 2


def test_window_gathers_those_who_come_soon() -> None:
    pool, _ = make_pool(gather_window_s=30.0)
    pool.put([live(0, first=True), live(1, first=True)])
    act(pool, pool.recv(1.0))
    pool.put([live(0)])
    sender = threading.Thread(target=lambda: (time.sleep(0.02), pool.put([live(1)])))
    sender.start()
    assert sorted(pool.recv(1.0).env_ids.tolist()) == [0, 1]
    sender.join()


def test_requests_that_are_as_old_as_the_deadline_wait_for_nobody() -> None:
    pool, _ = make_pool(max_wait_s=60.0)
    pool.put([live(0, first=True), live(1, first=True)])
    act(pool, pool.recv(1.0))
    pool._intake.queue.put((time.monotonic() - 60.0, [live(0)]))  # it came while the agent acted
    assert pool.recv(1.0).env_ids.tolist() == [0]
    pool.put([live(0)])
    sender = threading.Thread(target=lambda: pool.put([live(1)]))
    sender.start()
    assert sorted(pool.recv(1.0).env_ids.tolist()) == [0, 1]  # this one has time
    sender.join()


def test_waiting_in_vain_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _ = make_pool(gather_window_s=0.05)
    pool.put([live(0, first=True), live(1, first=True)])
    act(pool, pool.recv(1.0))
    windows, take_next = 0, pool._intake.take_next

    def count(timeout_s: float) -> bool:
        nonlocal windows
        windows += 1
        return take_next(timeout_s)

    monkeypatch.setattr(pool._intake, "take_next", count)
    for _ in range(40):
        pool.put([live(0)])
        act(pool, pool.recv(1.0))
    assert 1 <= windows < 20


def test_batches_are_bounded_and_the_rest_comes_next() -> None:
    pool, _ = make_pool(gather_max=3)
    pool.put([live(slot, first=True) for slot in range(5)])
    first, second = pool.recv(1.0), pool.recv(1.0)
    assert first.env_ids.tolist() == [0, 1, 2]
    assert second.env_ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.Discrete(3, start=5), [2], 7),
        (spaces.Box(-1, 1, (2,), np.float32), [[0.5, -0.5]], [0.5, -0.5]),
        (spaces.Box(-1, 1, (), np.float32), [0.5], 0.5),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [1, 2]),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}), [[1, 2]], {"a": 1, "b": 2}),
    ],
)
def test_actions_are_handed_over_as_the_space_has_them(space: Any, actions: Any, expected: Any) -> None:
    pool, server = make_pool(space)
    pool.put([live(0, first=True)])
    pool.send(np.array(actions), pool.recv(1.0).env_ids)
    action = server.actions[0][1]
    plain = dict(action) if isinstance(action, dict) else np.asarray(action).tolist()
    assert plain == expected


def test_actions_nobody_waits_for_are_refused() -> None:
    pool, server = make_pool()
    pool.put([live(0, first=True)])
    pool.recv(1.0)
    for ids, actions in ([1], [0]), ([0, 0], [0, 0]), ([0], [[0]]):
        with pytest.raises(ValueError, match=r"wait for one|must have shape"):
            pool.send(np.array(actions), np.array(ids))
    assert server.actions == []
    pool.send(np.array([1]), np.array([0]))
    assert len(server.actions) == 1


def test_states_of_any_form_reach_the_agent_as_they_came() -> None:
    pool = RlxEnvPool(spaces.Discrete(2))
    state = {"anything": [1, "text"]}
    pool.put([LiveEvent(0, "session", state, 0.0, True, False)])
    batch = pool.recv(1.0)
    assert batch.obs.dtype == object
    assert batch.obs[0] is state
    assert batch.record.tolist() == [False]
    assert batch.explore.tolist() == [True]


def test_server_that_exploits_records_and_explores_nothing() -> None:
    pool, _ = make_pool(explore=False, record=False)
    pool.put([live(0, first=True)])
    batch = pool.recv(1.0)
    assert batch.explore.tolist() == batch.record.tolist() == [False]


def test_stacked_frames_are_what_the_pool_shows() -> None:
    pool, _ = make_pool(frame_stack=3)
    assert pool.obs_spec.leaves[0].shape == (3, 2)
    pool.put([LiveEvent(0, None, [np.ones((3, 2), np.float32)], 0.0, True, False)])
    assert pool.recv(1.0).obs.shape == (1, 3, 2)
    with pytest.raises(ValueError, match="frame_stack"):
        RlxEnvPool(spaces.Discrete(2), spaces.Dict({"a": SPACE}), frame_stack=2)


def test_closed_pool_answers_nobody() -> None:
    pool, server = make_pool()
    pool.put([live(0, first=True)])
    batch = pool.recv(1.0)
    pool.close()
    act(pool, batch)
    assert server.actions == []
