"""Templates of ViZDoom, DeepMind Lab, MiniGrid, dm_control, a class of one's own and the browser: apps that play."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from surreal.config import load_config
from surreal.envs.window import Window
from surreal.plugins.apps.creating import new_app, set_settings
from surreal.plugins.apps.environments import find_template
from surreal.rlx import RandomAgent
from surreal.run.build.check import check_names
from surreal.run.build.environments import build_spaces

ROOT = Path(__file__).parents[3]
MODULES = ("training", "environment", "environment.gym_env", "test_training")


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs of apps import each other by bare names."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    spec = importlib.util.spec_from_file_location("deepmind_lab", ROOT / "tests/plugins/games/lab_stand_in.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deepmind_lab", module)
    spec.loader.exec_module(module)
    (tmp_path / "my_game.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as MyGame\n")


def program(folder: Path, agent: RandomAgent, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment program of an app, with an agent that acts at random."""
    monkeypatch.chdir(folder)
    sys.path.insert(0, str(folder / "environment"))
    training = importlib.import_module("training").Training(
        ["--config", "app.yaml"], agent=agent, infinite_run=False, max_episodes=1
    )
    agent._action = training.env.action_space.sample
    return training


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    ("environment", "env_id", "algorithm"),
    [
        ("vizdoom:basic", "surreal/ViZDoom-v0", "A2C"),
        ("lab", "surreal/DeepMindLab-v0", "A2C"),
        ("minigrid", "MiniGrid-Empty-8x8-v0", "PPO"),
        ("dm-control", "dm_control/cartpole-balance-v0", "PPO"),
        ("my_game:MyGame", "my_game:MyGame", "PPO"),
    ],
)
def test_an_app_of_it_plays_and_its_settings_fit(
    environment: str, env_id: str, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    change = new_app(folder, environment, None)
    assert change.template is not None
    set_settings(folder / "app.yaml", {"env.kwargs.max_episode_steps": "3"})
    config = load_config(folder / "app.yaml")
    assert (config.env.id, config.learner.class_path) == (env_id, f"surreal.learner.{algorithm}Learner")
    check_names(config)
    agent = RandomAgent(1)
    training = program(folder, agent, monkeypatch)
    assert training.run()
    assert agent.episodes == 1
    assert (1 if env_id == "surreal/ViZDoom-v0" else 3) <= agent.steps <= 3  # a monster may be shot before
    # What the program sends is what the server expects.
    spaces = build_spaces(config, training=False)
    assert spaces.obs_spec is not None
    if config.env.observation_space is not None:
        shown = training.env.observation_space.shape
        assert (config.env.frame_stack, *shown) == spaces.obs_spec.leaves[0].shape
    training.env.close()


@pytest.mark.usefixtures("_fresh")
def test_a_signal_shows_and_hides_a_running_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[int] = []

    class Watched(RandomAgent):
        def update(self, *args: Any, **kwargs: Any) -> Any:
            if self.steps in (2, 4):
                signal.raise_signal(signal.SIGUSR1)
            action = super().update(*args, **kwargs)
            return None if action is None else 0  # no shot that might end the episode sooner

    agent = Watched(1)
    monkeypatch.setattr(Window, "show", lambda self, frame: frames.append(agent.steps) or True)
    new_app(tmp_path / "app", "vizdoom:basic", None)
    set_settings(tmp_path / "app" / "app.yaml", {"env.kwargs.max_episode_steps": "8"})
    training = program(tmp_path / "app", agent, monkeypatch)
    assert training.run()
    assert frames == [3, 4], "from one signal to the next"
    training.env.close()


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("DOOM", "vizdoom"),
        ("vizdoom:deadly_corridor", "vizdoom"),
        ("deepmind-lab:lt_chasm", "deepmind-lab"),
        ("BabyAI-GoToObj-v0", "minigrid"),
        ("dm_control/cheetah-run-v0", "dm-control"),
        ("web", "browser"),
        ("C#", "csharp"),
        ("my_package.games:MyGame", "module"),
        ("my_package:MyGame-v0", "gymnasium"),
        ("VizdoomBasic-v1", "gymnasium"),
    ],
)
def test_names_mean_these_templates(name: str, template: str) -> None:
    assert find_template(name).name == template


def test_the_page_of_a_browser_app_is_served_from_its_folder(tmp_path: Path) -> None:
    new_app(tmp_path / "app", "browser", None)
    config = load_config(tmp_path / "app" / "app.yaml")
    assert config.rlx.pages == str(tmp_path / "app" / "environment")
    check_names(config)
    (tmp_path / "app" / "environment" / "index.html").unlink()
    with pytest.raises(Exception, match=r"rlx\.pages is .*environment, which has no index\.html \(.*app\.yaml line"):
        check_names(config)
