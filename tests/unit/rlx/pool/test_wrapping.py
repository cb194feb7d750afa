"""Wrappers applied to environments that are elsewhere: the same numbers as around the environment itself."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.envs.wrappers.named import WrapperSpec
from surreal.rlx.pool.states import StateReader
from surreal.rlx.pool.wrapping import RemoteWrappers
from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError

BOX, TWO = spaces.Box(-9, 9, (2, 2), np.float32), spaces.Discrete(2)


class Halve(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Writes into what it gets."""

    def observation(self, obs: Any) -> Any:
        obs /= 2
        return obs


class Count(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Remembers; its own buffer is what it returns."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._seen = np.zeros((2, 2), np.float32)

    def observation(self, obs: Any) -> Any:
        self._seen += 1
        return self._seen


class Broken(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, obs: Any) -> Any:
        raise KeyError("lives")


class Divide(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, obs: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / obs


class WrongShape(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, obs: Any) -> Any:
        return obs[0]


class Cheat(gymnasium.RewardWrapper[Any, Any]):
    """Does more than a function of the reward."""

    def step(self, action: Any) -> Any:
        return self.env.step(action)

    def reward(self, reward: Any) -> Any:
        return reward


def two_wrappers(env: Any) -> Any:
    return gymnasium.wrappers.FlattenObservation(Halve(env))


def local(name: str) -> str:
    return f"{__name__}.{name}"


def make(*specs: WrapperSpec, space: Any = BOX, action: Any = TWO, training: bool = True) -> RemoteWrappers:
    return RemoteWrappers(specs, space, action, training=training)


def test_observations_pass_from_the_inside_to_the_outside() -> None:
    wrappers = make(WrapperSpec(local("Halve")), WrapperSpec("flatten"))
    assert wrappers.observation_space.shape == (4,)
    sent = np.arange(4, dtype=np.float32).reshape(2, 2)
    sent.flags.writeable = False
    (made,) = wrappers.open(training=True).observation([sent])
    assert made.tolist() == [0, 0.5, 1, 1.5]
    assert sent.tolist() == [[0, 1], [2, 3]]


def test_function_that_makes_several_wrappers_can_be_applied() -> None:
    (made,) = make(WrapperSpec(local("two_wrappers"))).open(training=True).observation([np.full((2, 2), 3, np.float32)])
    assert made.tolist() == [1.5] * 4


@pytest.mark.parametrize(
    ("space", "sent"),
    [
        (spaces.Discrete(3, start=5), 6),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))}), {"a": 1, "b": [0.25, 0.5]}),
        (spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, ())]), [[1, 2], 0.5]),
    ],
)
def test_flatten_is_what_it_is_around_an_environment(space: Any, sent: Any) -> None:
    wrappers = make(WrapperSpec("flatten"), space=space)
    (made,) = wrappers.open(training=True).observation(StateReader(space).read(sent))
    value = {"a": np.int64(1), "b": np.array([0.25, 0.5])} if isinstance(sent, dict) else sent
    value = (np.array([1, 2]), np.array(0.5)) if isinstance(sent, list) else value
    np.testing.assert_array_equal(made, spaces.flatten(space, value))


def test_sessions_do_not_share_what_wrappers_remember() -> None:
    wrappers = make(WrapperSpec(local("Count")))
    first, second = wrappers.open(training=True), wrappers.open(training=True)
    sent = [np.zeros((2, 2), np.float32)]
    one, two = first.observation(sent)[0], first.observation(sent)[0]
    assert (one[0, 0], two[0, 0], second.observation(sent)[0][0, 0]) == (1, 2, 1)


def test_rewards_are_counted_below_the_wrappers_of_training() -> None:
    wrappers = make(
        WrapperSpec("reward_scale", {"scale": 3}, training_only=False),
        WrapperSpec("reward_clip"),
        WrapperSpec("reward_scale", {"scale": 0.5}),
    )
    assert wrappers.open(training=True).rewards(2.0) == (6.0, 0.5)
    assert wrappers.open(training=False).rewards(2.0) == (6.0, 6.0)


def test_actions_pass_from_the_outside_to_the_inside() -> None:
    rescale = WrapperSpec("rescale_action", {"min_action": np.float32(-1), "max_action": np.float32(1)})
    wrappers = make(rescale, WrapperSpec("clip_action"), action=spaces.Box(-2, 2, (1,), np.float32))
    assert wrappers.action_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    made = wrappers.open(training=True).action(np.array([0.5], np.float32))
    assert made.dtype == np.float32
    assert made.tolist() == [1.0]
    assert wrappers.open(training=True).action(np.array([7], np.float32)).tolist() == [2.0]
    with pytest.raises(EnvError, match="rescale_action refuses"):
        make(rescale)


def test_discrete_actions_are_numbers_for_the_wire() -> None:
    wrappers = make(
        WrapperSpec("gymnasium.wrappers.DiscretizeAction", {"bins": 3}), action=spaces.Box(-1, 1, (1,), np.float32)
    )
    assert wrappers.action_space == spaces.Discrete(3)
    assert wrappers.open(training=True).action(1).tolist() == pytest.approx([0.0], abs=1e-6)


@pytest.mark.parametrize(
    "name", ["atari", "life_loss", "stagger", "time_limit", "gymnasium.wrappers.NormalizeReward", "Cheat"]
)
def test_what_acts_in_the_environment_is_refused(name: str) -> None:
    path = local(name) if name == "Cheat" else name
    with pytest.raises(EnvError, match=rf"wrapper {path} .*on_client: true.*rlx-client --wrapper"):
        make(WrapperSpec(path, training_only=False))


def test_what_is_for_training_only_does_not_matter_where_nothing_is_learned() -> None:
    wrappers = make(WrapperSpec("life_loss"), WrapperSpec("flatten"), training=False)
    assert wrappers.observation_space.shape == (4,)


def test_training_with_other_spaces_than_evaluation_is_refused() -> None:
    with pytest.raises(EnvError, match="with the wrappers of training"):
        make(WrapperSpec("flatten", training_only=True))


def test_failing_wrapper_is_an_error_of_the_request() -> None:
    with pytest.raises(RlxRequestError, match="wrapper Broken failed: KeyError"):
        make(WrapperSpec(local("Broken"))).open(training=True).observation([np.zeros((2, 2), np.float32)])
    with pytest.raises(RlxRequestError, match=r"made a state of shape \(2,\), their space has \(2, 2\)"):
        make(WrapperSpec(local("WrongShape"))).open(training=True).observation([np.zeros((2, 2), np.float32)])
    with pytest.raises(RlxValueError, match=r"the state\[0, 0\] is inf; it must be finite"):
        make(WrapperSpec(local("Divide"))).open(training=True).observation([np.zeros((2, 2), np.float32)])
