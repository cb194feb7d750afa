"""Every algorithm with every kind of environment that makes sense: the app that comes of it can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from surreal.config import add_python_path, load_config
from surreal.plugins.apps.configurations import choose, configurations, families
from surreal.plugins.apps.creating import new_app
from surreal.plugins.apps.environments import find_template
from surreal.run.lockstep.check import check_run

#: An environment of each kind.
KINDS = {"bandit": "bandit", "cartpole": "CartPole-v1", "pendulum": "Pendulum-v1", "image": "tiny_images:TinyImages-v0"}
_IMAGES = """
import gymnasium
import numpy as np


class TinyImages(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (60, 80, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, **options):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


if "TinyImages-v0" not in gymnasium.registry:
    gymnasium.register("TinyImages-v0", entry_point=TinyImages)
"""
PAIRS = [
    (KINDS[each.family], each.algorithm) for each in configurations() if each.family in KINDS and each.algorithm
] + [("ALE/Pong-v5", "rainbow")]
#: Networks with convolutions take a second each.
MARKED = [pytest.param(*pair, marks=pytest.mark.slow if pair[0] == KINDS["image"] else ()) for pair in PAIRS]


@pytest.mark.parametrize(("environment", "algorithm"), MARKED)
def test_app_can_run(environment: str, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for name in ("environment", "environment.gym_env", "tiny_images"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "tiny_images.py").write_text(_IMAGES)
    folder = tmp_path / "app"
    new_app(folder, environment, algorithm)
    config = load_config(folder / "app.yaml")
    add_python_path(config.python_path)
    check_run(config)
    assert (config.environment.count, config.rlx.servers) == (1, 1)


def test_all_algorithms_of_the_ancestor_are_in_the_matrix() -> None:
    found = {algorithm for _, algorithm in PAIRS}
    assert found >= {"pg", "a2c", "trpo", "ddpg", "dqn", "ppo", "sac", "td3", "vtrace", "r2d2", "ipg", "rainbow"}


def test_the_best_family_comes_first() -> None:
    template = find_template("gymnasium")
    assert families(template, "HalfCheetah-v5") == ["halfcheetah", "pendulum"]
    assert choose("ppo", ["acrobot", "cartpole"]).name == "acrobot-ppo"
    assert choose("sac", ["acrobot", "cartpole"]).name == "cartpole-sac"


@pytest.mark.parametrize("environment", ["bandit", "gymnasium"])
def test_the_test_of_a_new_app_passes(environment: str, tmp_path: Path) -> None:
    new_app(tmp_path / "app", environment, None)
    # As in a folder of its own: this one may lie in the clone, whose settings of pytest are not an app's.
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path / "app", capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
