"""Ids of environments: classes in place of ids, and packages that are imported for theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.envs import LocalEnvPool, check_env_id, ids, make_env
from surreal.envs.ids import missing_package, render_modes

MODULE = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Corridor(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, length=3, render_mode=None):
        self.length, self.render_mode = length, render_mode
        self.observation_space = spaces.Box(0.0, 100.0, (1,))
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += int(action)
        return np.full(1, self.at, np.float32), 1.0, self.at >= self.length, False, {}

def long_corridor(length=9):
    return Corridor(length)

class NoEnv:
    pass

gymnasium.register("test/Registered-v0", entry_point=Corridor)
LIMIT = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "corridors.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.delitem(sys.modules, "corridors", raising=False)
    return "corridors"


def length_of(env: Any) -> int:
    env.reset(seed=0)
    steps = 1
    while not any(env.step(1)[2:4]):
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("name", "kwargs", "length"),
    [
        ("Corridor", {}, 3),
        ("Corridor", {"length": 5}, 5),
        ("Corridor", {"length": 5, "max_episode_steps": 2}, 2),
        ("long_corridor", {}, 9),
        ("long_corridor", {"length": 4}, 4),
        ("test/Registered-v0", {}, 3),
    ],
)
def test_a_class_or_a_function_of_a_module_is_an_environment(
    module: str, name: str, kwargs: dict[str, Any], length: int
) -> None:
    check_env_id(f"{module}:{name}")
    assert length_of(make_env(f"{module}:{name}", kwargs=kwargs)) == length


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Coridor", r"corridors\.py has no class or function Coridor, .*; did you mean corridors:Corridor\?"),
        ("LIMIT", "has no class or function LIMIT"),
        ("Corridor-v1", "does not exist"),
        ("NoEnv", "cannot be made"),
    ],
)
def test_what_a_module_does_not_have_is_named(module: str, name: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(f"{module}:{name}")


def test_ways_of_drawing_are_known_without_making_anything(module: str) -> None:
    assert render_modes(f"{module}:Corridor") == ["rgb_array"]
    assert render_modes(f"{module}:long_corridor") == ()
    assert render_modes(f"{module}:Nothing") == ()
    assert "rgb_array" in render_modes("CartPole-v1")


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [
        ("ALE/Pong-v5", "atari"),
        ("VizdoomBasic-v1", "vizdoom"),
        ("surreal/ViZDoom-v0", "vizdoom"),
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
        ("BabyAI-GoToObj-v0", "minigrid"),
        ("dm_control/cartpole-balance-v0", "dm-control"),
        ("FetchReach-v4", "robotics"),
        ("HalfCheetah-v5", "mujoco"),
        ("LunarLander-v3", "box2d"),
    ],
)
def test_the_extra_of_every_family_is_named(env_id: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"[{extra}]'" in str(missing_package(env_id, ""))
    if env_id.partition("/")[0] not in ("surreal", "HalfCheetah-v5", "LunarLander-v3"):
        monkeypatch.setattr(ids, "find_spec", lambda name: None)
        with pytest.raises(EnvError, match=rf"{env_id} needs a package that is not installed; .*\[{extra}\]"):
            check_env_id(env_id)


def test_ids_of_a_package_are_there_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for env_id in ("MiniGrid-Empty-5x5-v0", "VizdoomBasic-v1", "dm_control/cartpole-balance-v0"):
        check_env_id(env_id)
    with pytest.raises(EnvError, match="did you mean MiniGrid-Empty-5x5-v0"):
        check_env_id("MiniGrid-Empti-5x5-v0")


def test_dm_control_runs_in_a_pool_with_actions_of_float32() -> None:
    make = [lambda: make_env("dm_control/cartpole-balance-v0")] * 2
    pool = LocalEnvPool(make, seed=(1,))
    try:
        assert pool.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        assert sorted(leaf.name for leaf in pool.obs_spec.leaves) == ["position", "velocity"]
        rewards = []
        for _ in range(4):
            batch = pool.recv()
            rewards += batch.reward.tolist()
            pool.send(np.zeros((2, 1), np.float32), batch.env_ids[batch.num_last :])
        assert 0 < max(rewards) <= 1
    finally:
        pool.close()


def test_dm_control_truncates_at_its_time_limit() -> None:
    env: Any = make_env("dm_control/cartpole-balance-v0", kwargs={"task_kwargs": {"time_limit": 0.05}})
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(5)]
    assert ends[-2:] == [(False, False), (False, True)]
    env.close()
