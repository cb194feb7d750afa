"""Attributes that callbacks set: applied when an episode begins, and only where the environment has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from surreal.base.errors import EnvError
from surreal.base.system.files import write_whole
from surreal.envs.wrappers.attributes import FollowAttributes


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
