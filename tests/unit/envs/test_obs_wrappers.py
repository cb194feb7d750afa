"""Wrappers that change what is seen: entries of a Dict, gray images, MiniGrid's codes."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.envs import WrapperSpec, make_env
from surreal.envs.pools.base import describe_observations
from surreal.envs.wrappers.observations import ChannelsFirst, GrayImage, ObsEntries, arrays_only


class Shown(gymnasium.Env[Any, Any]):
    """Shows whatever its space gives."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


PARTS = spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3), "words": spaces.Text(5)})


def test_entries_are_chosen_one_alone_or_several_together() -> None:
    one = ObsEntries(Shown(PARTS), "b")
    assert one.observation_space == spaces.Discrete(3)
    assert one.observation_space.contains(one.reset(seed=0)[0])
    several = ObsEntries(Shown(PARTS), ["b", "a"])
    assert several.observation_space == spaces.Dict({"a": PARTS["a"], "b": PARTS["b"]})
    assert several.observation_space.contains(several.reset(seed=0)[0])


@pytest.mark.parametrize(
    ("env_id", "keys", "message"),
    [
        ("surreal/CartPoleDict-v0", "speed", "keys is speed; there are position, velocity"),
        ("surreal/CartPoleDict-v0", [], "there are position, velocity"),
        ("CartPole-v1", "position", "only a Dict has entries"),
    ],
)
def test_entries_that_are_not_there_are_named(env_id: str, keys: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(env_id, wrappers=[WrapperSpec("obs_entries", {"keys": keys})])


def test_text_is_left_out_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        env = arrays_only(Shown(PARTS))
        assert set(env.observation_space.spaces) == {"a", "b"}  # type: ignore[attr-defined]
        assert set(env.reset(seed=0)[0]) == {"a", "b"}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "observations are without words" in line
    # Nothing is left out where nothing would be left, or nothing has to be.
    for space in (spaces.Dict({"words": spaces.Text(5)}), spaces.Dict({"a": PARTS["a"]}), spaces.Text(5)):
        env = Shown(space)
        assert arrays_only(env) is env


def test_images_are_gray_and_averaged_down() -> None:
    env = GrayImage(Shown(spaces.Box(0, 255, (4, 6, 3), np.uint8)), [2, 3])
    image = np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    naive = np.rint(image @ np.array([0.299, 0.587, 0.114])).reshape(2, 2, 3, 2).mean(axis=(1, 3))
    assert env.observation_space == spaces.Box(0, 255, (2, 3), np.uint8)
    assert abs(env.observation(image) - naive).max() <= 0.5
    one = GrayImage(Shown(spaces.Box(0, 255, (4, 6, 1), np.uint8)))
    assert np.array_equal(one.observation(image[..., :1]), image[..., 0])
    for space, message in ((spaces.Box(0, 1, (4, 6, 3)), "it takes"), (spaces.Box(0, 255, (4,), np.uint8), "it takes")):
        with pytest.raises(ValueError, match=message):
            GrayImage(Shown(space))


def test_channels_move_to_the_front() -> None:
    env = ChannelsFirst(Shown(spaces.Box(0, 255, (4, 6, 3), np.uint8)))
    assert env.observation_space == spaces.Box(0, 255, (3, 4, 6), np.uint8)
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    assert np.array_equal(env.observation(image)[2], image[..., 2])
    with pytest.raises(ValueError, match="it takes a Box"):
        ChannelsFirst(Shown(spaces.Box(0, 255, (4, 6), np.uint8)))


def test_minigrid_runs_by_itself_without_its_mission() -> None:
    env = make_env("MiniGrid-Empty-5x5-v0")
    names = [leaf.name for leaf in describe_observations(env.observation_space).leaves]
    assert names == ["direction", "image"]
    assert env.observation_space.contains(env.reset(seed=0)[0])


def test_minigrid_codes_become_zeros_and_ones() -> None:
    env = make_env("MiniGrid-DoorKey-5x5-v0", wrappers=[WrapperSpec("minigrid")])
    plain = make_env("MiniGrid-DoorKey-5x5-v0")
    for action in (None, 0, 1, 2, 2):
        seen = [one.reset(seed=4)[0] if action is None else one.step(action)[0] for one in (env, plain)]
        naive = []
        for codes in seen[1]["image"].reshape(-1, 3):
            for code, size in zip(codes, (11, 6, 3), strict=True):
                naive += [float(code == value) for value in range(size)]
        naive += [float(seen[1]["direction"] == value) for value in range(4)]
        assert seen[0].dtype == np.float32
        assert seen[0].tolist() == naive
        assert env.observation_space.contains(seen[0])


def test_minigrids_own_wrappers_go_below_ours_or_in_place_of_it() -> None:
    full = WrapperSpec("minigrid.wrappers:FullyObsWrapper")
    env = make_env("MiniGrid-Empty-5x5-v0", wrappers=[full, WrapperSpec("minigrid")])
    assert env.observation_space.shape == (5 * 5 * 20 + 4,)
    text = make_env("MiniGrid-Empty-5x5-v0", wrappers=[WrapperSpec("minigrid.wrappers:FlatObsWrapper")])
    assert describe_observations(text.observation_space).is_array, "the mission is in it, letter by letter"
    with pytest.raises(EnvError, match="it needs those of MiniGrid"):
        make_env("CartPole-v1", wrappers=[WrapperSpec("minigrid")])
