"""The driver of gymnasium environments, with an agent that is not there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import EnvError, StoppedError
from surreal.rlx.client import gym_driver
from surreal.rlx.client.connection import AgentProxyReplyError
from surreal.rlx.client.gym_driver import DriverOptions, GymTraining, run_envs, to_env_action


class CountingEnv(gymnasium.Env[Any, Any]):
    """Ends as it is told after three steps; the reward is the action."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(5)

    def __init__(self, terminated: bool = True, truncated: bool = False) -> None:
        self.ends = (terminated, truncated)
        self.seeds: list[int | None] = []
        self.is_closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        is_over = self.count == 3
        obs = np.full(1, self.count, np.float32)
        return obs, action, is_over and self.ends[0], is_over and self.ends[1], {}

    def close(self) -> None:
        self.is_closed = True


class FakeAgent:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.updates: list[tuple[Any, ...]] = []
        self.records: list[Any] = []

    def connect(self, retry: int = 6) -> None: ...

    def init(self, exploit: bool = False) -> None: ...

    def disconnect(self) -> None: ...

    def update(self, reward: Any, state: Any, terminal: bool = False, truncated: bool = False) -> Any:
        self.updates.append((reward, float(state[0]), terminal, truncated))
        return None if terminal or truncated else np.int64(2)

    def update_metrics(self, records: Any) -> None:
        self.records += records


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((True, False), (True, False)), ((False, True), (True, True)), ((True, True), (True, False))],
    ids=["terminated", "time limit", "both"],
)
def test_a_time_limit_is_sent_as_truncated_unless_the_episode_ended_anyway(
    ends: tuple[bool, bool], expected: tuple[bool, bool]
) -> None:
    agent = FakeAgent()
    training = GymTraining(CountingEnv(*ends), agent, max_episodes=1)  # type: ignore[arg-type]
    assert training.run()
    assert agent.updates == [
        (None, 0.0, False, False),
        (2.0, 1.0, False, False),
        (2.0, 2.0, False, False),
        (2.0, 3.0, *expected),
    ]
    assert [record["y"] for record in agent.records] == [6.0, 6.0]


def test_only_the_first_episode_is_seeded() -> None:
    env = CountingEnv()
    GymTraining(env, FakeAgent(), seed=5, max_episodes=3).run()  # type: ignore[arg-type]
    assert env.seeds == [5, None, None]


def test_a_stop_ends_an_episode_in_its_middle() -> None:
    stop = threading.Event()

    class Stopping(FakeAgent):
        def update(self, *args: Any, **kwargs: Any) -> Any:
            stop.set()
            return super().update(*args, **kwargs)

    with pytest.raises(StoppedError):
        GymTraining(CountingEnv(), Stopping(), stop=stop).run()  # type: ignore[arg-type]


def test_episodes_are_split_evenly_and_environments_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_driver, "AgentProxy", FakeAgent)
    envs: list[CountingEnv] = []

    def make() -> CountingEnv:
        envs.append(CountingEnv())
        return envs[-1]

    ends = []
    counts = run_envs([make] * 3, DriverOptions("nowhere", episodes=7, seed=1), on_episode=ends.append)
    assert not counts.failures
    assert sorted(end.env_index for end in ends) == [0, 0, 0, 1, 1, 2, 2]
    assert counts.episodes == ends
    assert {(end.episode_return, end.length) for end in ends} == {(6.0, 3)}
    assert all(env.is_closed for env in envs)
    assert len({env.seeds[0] for env in envs}) == 3
    again = run_envs([make] * 3, DriverOptions("nowhere", episodes=3, seed=1))
    assert not again.failures
    assert {env.seeds[0] for env in envs[3:]} == {env.seeds[0] for env in envs[:3]}


def test_environments_without_episodes_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_driver, "AgentProxy", FakeAgent)
    made = []
    counts = run_envs([lambda: made.append(1) or CountingEnv()] * 5, DriverOptions("nowhere", episodes=2))
    assert len(made) == len(counts.episodes) == 2


@pytest.mark.parametrize("failure", [EnvError("cannot be made"), RuntimeError("broke")], ids=repr)
def test_one_failure_ends_all(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    monkeypatch.setattr(gym_driver, "AgentProxy", FakeAgent)

    def fail() -> CountingEnv:
        raise failure

    counts = run_envs([CountingEnv, fail, CountingEnv], DriverOptions("nowhere"))
    assert counts.failures == [failure]


def test_an_error_reply_is_a_failure(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(FakeAgent):
        def init(self, exploit: bool = False) -> None:
            raise AgentProxyReplyError("no")

    monkeypatch.setattr(gym_driver, "AgentProxy", Refusing)
    counts = run_envs([CountingEnv] * 2, DriverOptions("nowhere"))
    assert {str(failure) for failure in counts.failures} == {"no"}


SPACE = spaces.Dict(
    {"a": spaces.Discrete(3, start=1), "b": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])}
)


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (spaces.Discrete(3), 2, 2),
        (spaces.Discrete(3), np.array([2]), 2),
        (spaces.Discrete(3, start=1), 3, 3),
        (spaces.Box(-1, 1, (2,)), [0.5, -0.5], np.array([0.5, -0.5], np.float32)),
        (spaces.Box(-1, 1, (1, 2)), np.array([0.5, 1.0]), np.array([[0.5, 1.0]], np.float32)),
        (spaces.Box(-1, 1, ()), 0.5, np.array(0.5, np.float32)),
        (spaces.MultiDiscrete([2, 3]), [1, 2], np.array([1, 2])),
        (
            SPACE,
            {"a": 2, "b": [[0.0, 1.0], [1, 0]]},
            {"a": 2, "b": (np.array([0, 1], np.float32), np.array([1, 0], np.int8))},
        ),
    ],
    ids=str,
)
def test_actions_become_what_the_space_has(space: spaces.Space[Any], action: Any, expected: Any) -> None:
    found = to_env_action(space, action)
    np.testing.assert_equal(found, expected)
    if not (isinstance(space, spaces.Box) and space.shape == ()):
        assert space.contains(OrderedDict(found) if isinstance(found, dict) else found)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), [1, 2]),
        (spaces.Discrete(3), None),
        (spaces.Box(-1, 1, (2,)), [1.0]),
        (SPACE, {"a": 1}),
        (SPACE, 3),
    ],
    ids=str,
)
def test_actions_of_another_structure_are_an_error(space: spaces.Space[Any], action: Any) -> None:
    with pytest.raises(EnvError, match="does not fit"):
        to_env_action(space, action)
