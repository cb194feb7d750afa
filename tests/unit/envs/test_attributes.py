"""Attributes that callbacks set: applied when an episode begins, and only where the environment has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.base.system.files import write_whole
from surreal.envs.wrappers.attributes import FollowAttributes, FollowVectorAttributes


@pytest.fixture
def following(tmp_path: Path) -> Any:
    path = tmp_path / "attributes.json"
    write_whole(path, "{}")
    env = FollowAttributes(gymnasium.make("CartPole-v1"), path)
    yield env, lambda **values: write_whole(path, json.dumps(values))
    env.close()


def test_an_attribute_changes_between_episodes(following: Any) -> None:
    env, write = following
    env.reset(seed=0)
    write(gravity=20.0)
    env.step(0)
    assert env.unwrapped.gravity == 9.8
    for gravity in (20.0, 30.0, 40.0):  # files that follow at once may have the same time
        write(gravity=gravity)
        env.reset()
        assert env.unwrapped.gravity == gravity


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gravty", "did you mean gravity"), ("step", ""), ("_elapsed_steps", ""), ("action_space", ""), ("spec", "")],
)
def test_what_is_no_public_data_of_the_environment_is_refused(following: Any, name: str, hint: str) -> None:
    env, write = following
    write(**{name: 1})
    with pytest.raises(EnvError, match=rf"CartPoleEnv has no attribute {name} that a callback may set.*{hint}"):
        env.reset()


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync", "async"])
def test_a_vector_environment_changes_when_an_episode_is_over(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "attributes.json"
    write_whole(path, "{}")
    made = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, max_episode_steps=3)
    env = FollowVectorAttributes(made, path)

    def pushes_until_an_end() -> list[Any]:
        """How strongly actions move the carts."""
        forces = []
        while True:
            before, after, *ended, _ = obs[-1], *env.step(np.ones(2, np.int64))
            obs.append(np.array(after))
            forces.append(np.abs(after[:, 1] - before[:, 1]) > 0.1)
            if np.any(ended[1:]):
                return forces

    try:
        obs = [np.array(env.reset(seed=0)[0])]
        write_whole(path, '{"force_mag": 0.0}')
        assert np.all(pushes_until_an_end())
        obs.append(np.array(env.step(np.ones(2, np.int64))[0]))  # the step that begins the next episodes
        assert not np.any(pushes_until_an_end())
        for name in ("force_magg", "step", "num_envs", "_np_random"):
            write_whole(path, json.dumps({name: 1}))
            with pytest.raises(EnvError, match=f"has no attribute {name} that a callback may set"):
                env.reset()
    finally:
        env.close()
