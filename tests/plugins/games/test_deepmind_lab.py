"""DeepMind Lab, on a stand-in with its interface: there is no wheel of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.envs import make_env
from surreal.plugins.games.deepmind_lab import ACTIONS

HERE = Path(__file__).parent


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("deepmind_lab", HERE / "lab_stand_in.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deepmind_lab", module)
    spec.loader.exec_module(module)
    return module


def make(**kwargs: Any) -> Any:
    env = make_env("surreal/DeepMindLab-v0", kwargs={"shape": [4, 6], "no_op_max": 0, **kwargs})
    env.reset(seed=1)
    return env


@pytest.mark.parametrize(("size", "count"), [("small", 4), ("medium", 6), ("full", 11)])
def test_every_action_sets_one_input_of_lab(lab: Any, size: str, count: int) -> None:
    env = make(action_size=size, frame_skip=3)
    assert env.action_space.n == count
    for action in range(count):
        env.step(action)
    names = [name for name, _, _ in lab.INPUTS]
    for (values, frames), (name, value) in zip(lab.made[-1].actions, list(ACTIONS.values())[:count], strict=True):
        assert frames == 3
        assert dict(zip(names, values, strict=True)) == dict.fromkeys(names, 0) | {name: value}


def test_levels_get_their_settings_as_text(lab: Any) -> None:
    make(level_script="lt_chasm", fps=30, renderer="hardware", config={"botCount": 2, "gadgetSelect": True})
    made = lab.made[-1]
    assert (made.level, made.renderer, made.asked) == ("lt_chasm", "hardware", ["RGB_INTERLEAVED", lab.FRAMES_LEFT])
    assert made.config == {"width": "6", "height": "4", "fps": "30", "botCount": "2", "gadgetSelect": "true"}


def test_frames_are_gray_or_in_colour(lab: Any) -> None:
    env, coloured = make(frame_skip=5), make(frame_skip=5, is_colored=True)
    for one in (env, coloured):
        obs, reward, *_ = one.step(2)
        assert one.observation_space.contains(obs)
        assert reward == 5
        value = obs[..., 0, 0].tolist()
        assert value == (round(0.886 * 50) if one is env else [50, 50, 0])
    assert coloured.observation_space.shape == (3, 4, 6)


def test_a_goal_is_an_end_and_the_time_is_a_limit(lab: Any) -> None:
    env = make(frame_skip=4, fps=20, config={"episodeLengthSeconds": 1})
    ends = [env.step(2)[1:4] for _ in range(3)]
    assert ends == [(4.0, False, False), (4.0, False, False), (2.0, True, False)]
    env.reset()
    ends = [env.step(0)[1:4] for _ in range(5)]
    assert ends[-2:] == [(0.0, False, False), (0.0, False, True)]
    assert lab.made[-1].num_steps() == 20


def test_without_a_clock_every_end_is_an_end(lab: Any) -> None:
    env = make(level_script="old", frame_skip=20, config={"episodeLengthSeconds": 1})
    assert lab.made[-1].asked == ["RGB_INTERLEAVED"]
    assert env.step(0)[1:4] == (0.0, True, False)


def test_episodes_begin_after_random_steps_without_action(lab: Any) -> None:
    env = make(no_op_max=5, frame_skip=2)
    numbers = set()
    for _ in range(30):
        before = len(lab.made[-1].actions)
        env.reset()
        begun = lab.made[-1].actions[before:]
        assert all(action == ([0] * 7, 2) for action in begun)
        numbers.add(len(begun))
    assert numbers == {0, 1, 2, 3, 4, 5}


def test_a_seed_makes_the_episodes_of_lab_repeatable(lab: Any) -> None:
    for _ in range(2):
        env = make()
        env.reset(seed=7)
        env.reset()
    first, second = (made.seeds[1:] for made in lab.made[1::2])
    assert first == second
    assert len(set(first)) == 2


def test_it_is_drawn_as_it_is(lab: Any) -> None:
    env = make_env("surreal/DeepMindLab-v0", kwargs={"shape": [4, 6]}, render_mode="rgb_array")
    env.reset(seed=0)
    assert np.asarray(env.render()).shape == (4, 6, 3)
    env.close()
    assert lab.made[-1].is_closed


def test_a_folder_of_lab_is_put_on_the_path(lab: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    make(lab_path=str(tmp_path))
    assert sys.path[-1] == str(tmp_path)
    assert lab.runfiles == [str(tmp_path)]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"action_size": "large"}, "action_size is 'large'; use one of small, medium, full"),
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"no_op_max": -1}, "no_op_max is -1"),
        ({"shape": 0}, "screen_size is 0"),
    ],
)
def test_wrong_arguments_are_named(lab: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make(**kwargs)


def test_without_its_package_the_way_to_it_is_said() -> None:
    with pytest.raises(EnvError, match=r"DeepMind Lab is not installed .* build it from the sources at github"):
        make_env("surreal/DeepMindLab-v0")
