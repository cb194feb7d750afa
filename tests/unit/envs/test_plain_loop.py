"""The classes of the plain loop, in the shape of the skeletons that a user writes."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_envs
from gymnasium.wrappers import RecordVideo

from surreal.base.errors import EnvError
from surreal.envs import Atari, Env, EpisodeMonitor, GymEnv, Visualization, Wrapper


def test_a_loop_that_never_resets_gets_phantom_steps() -> None:
    env = Visualization(EpisodeMonitor(GymEnv("CartPole-v1")))
    _, info = env.reset(seed=0)
    assert info["terminated"] is info["truncated"] is False
    phantoms = 0
    was_done = False
    for _ in range(100):
        new_obs, reward, done, info = env.step(0)
        assert info.get("phantom", False) == was_done
        assert done == (info["terminated"] or info["truncated"])
        if was_done:
            phantoms += 1
            assert (reward, done) == (0.0, False)
            assert np.abs(new_obs).max() <= 0.05
        was_done = done
    assert phantoms > 5


def test_a_loop_that_resets_sees_no_phantom_step() -> None:
    env = EpisodeMonitor(GymEnv(toy_envs.ToyEnv()))
    env.reset(seed=1)
    returns = []
    total = 0.0
    for _ in range(50):
        _, reward, done, info = env.step(1)
        assert "phantom" not in info
        total += reward
        if done:
            assert info["episode"]["return"] == total
            returns.append(total)
            total = 0.0
            env.reset()
    assert [found for found, _ in env.episodes] == returns


def test_the_monitor_counts_the_same_with_and_without_phantom_steps() -> None:
    found = []
    for is_resetting in (True, False):
        env = EpisodeMonitor(GymEnv(toy_envs.ToyEnv()))
        env.reset(seed=3)
        while len(env.episodes) < 10:
            _, _, done, _ = env.step(0)
            if done and is_resetting:
                env.reset()
        found.append(env.episodes)
    assert found[0] == found[1]


def test_the_monitor_tells_how_it_goes_and_keeps_a_bounded_number_of_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.envs.plain.wrappers._KEPT", 5)
    clock = iter(range(0, 1000, 4))  # s, at the end of each episode
    monkeypatch.setattr("surreal.envs.plain.wrappers.time.monotonic", lambda: float(next(clock)) + 100.0)
    lines: list[str] = []
    env = Visualization(EpisodeMonitor(GymEnv("CartPole-v1"), report_every_s=10, report=lines.append))
    env.reset(seed=0)
    lengths: list[int] = []
    while len(lengths) < 9:
        _, _, done, info = env.step(0)
        if done:
            lengths.append(info["episode"]["length"])
    assert env.episodes == [(float(length), length) for length in lengths[-5:]]  # of the monitor inside
    assert (env.num_episodes, env.num_steps) == (9, sum(lengths))
    assert [line.partition(":")[0] for line in lines] == ["episode 1", "episode 4", "episode 7"]
    assert (
        lines[0]
        == f"episode 1: mean return {lengths[0]:.1f}, mean length {lengths[0]} of the last 1; {lengths[0]} steps"
    )


def test_a_silent_monitor_and_attributes_that_nobody_has(capsys: pytest.CaptureFixture[str]) -> None:
    env = Wrapper(EpisodeMonitor(GymEnv(toy_envs.ToyEnv()), report_every_s=None))
    env.reset(seed=1)
    while not env.step(1)[2]:
        pass
    assert capsys.readouterr().out == ""
    with pytest.raises(AttributeError, match="neither Wrapper nor the environment in it has 'episode'"):
        _ = env.episode
    assert len(copy.deepcopy(env).episodes) == 1
    with pytest.raises(ValueError, match="report_every_s is -1"):
        EpisodeMonitor(GymEnv(toy_envs.ToyEnv()), report_every_s=-1)


def test_nested_actions_are_flat_for_the_agent() -> None:
    env = GymEnv(toy_envs.ToyEnv(action="dict"))
    env.reset(seed=0)
    env.step(env.action_space.sample())
    (action,) = env.env.actions  # type: ignore[attr-defined]
    assert set(action) == {"arm", "grip"}


def test_arguments_need_an_id() -> None:
    with pytest.raises(ValueError, match="need an environment's id"):
        GymEnv(toy_envs.ToyEnv(), max_length=3)
    assert GymEnv("CartPole-v1", max_episode_steps=3).env.spec.max_episode_steps == 3  # type: ignore[union-attr]


def test_visualization_does_nothing_unless_asked() -> None:
    inner = GymEnv("CartPole-v1")
    env = Visualization(inner)
    assert inner.env.render_mode is None
    env.close()


def test_show_ui_makes_the_environment_draw_in_a_window() -> None:
    inner = GymEnv("CartPole-v1")
    Visualization(EpisodeMonitor(inner), show_ui=True)
    assert inner.env.render_mode == "human"
    with pytest.raises(EnvError, match="made with render_mode None"):
        Visualization(GymEnv(toy_envs.ToyEnv()), show_ui=True)
    with pytest.raises(ValueError, match="exclude each other"):
        Visualization(inner, show_ui=True, video_folder="videos")


def test_environments_that_cannot_draw_say_so() -> None:
    class Silent(Env):
        def __init__(self) -> None:
            self.observation_space, self.action_space = toy_envs.BOX, toy_envs.ACTIONS["discrete"]

        def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros(3, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
            return np.zeros(3, np.float32), 0.0, False, {}

        def close(self) -> None:
            pass

    with pytest.raises(EnvError, match="Silent cannot be drawn"):
        Visualization(Wrapper(Silent()), show_ui=True)
    with pytest.raises(EnvError, match="Silent cannot be recorded"):
        Visualization(Wrapper(Silent()), video_folder="videos")


def test_episodes_are_recorded(tmp_path: Path) -> None:
    env = Visualization(GymEnv(toy_envs.ToyEnv(render_mode="rgb_array")), video_folder=str(tmp_path), record_every=2)
    assert isinstance(env.env.env, RecordVideo)  # type: ignore[attr-defined]
    for _ in range(3):
        env.reset()
        while not env.step(0)[2]:
            pass
    env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["video-episode-0.mp4", "video-episode-2.mp4"]


def test_recording_needs_moviepy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    env = GymEnv(toy_envs.ToyEnv(render_mode="rgb_array"))
    with pytest.raises(EnvError, match="needs moviepy"):
        env.record_to(str(tmp_path), 1)


def test_atari_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"pip install -e '\.\[atari\]'"):
        Atari("SpaceInvaders")
