"""What `surreal.train` may be given: the settings that come of it, and the errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium import spaces

from surreal.api.sources import nearest_preset, settings_for, write_source
from surreal.base.errors import ConfigError, EnvError, SurrealError
from surreal.config import Config, load_config
from surreal.envs import by_value, make_env
from surreal.envs.examples import Bandit


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


FEW, MANY = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (24,), np.float32)
IMAGE = spaces.Box(0, 255, (96, 96, 3), np.uint8)
MOVE, TURN = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("algorithm", "observation", "action", "preset"),
    [
        ("ppo", FEW, MOVE, "cartpole-ppo"),
        ("ppo", MANY, MOVE, "lunarlander-ppo"),
        ("ppo", FEW, TURN, "pendulum-ppo"),
        ("ppo", MANY, TURN, "halfcheetah-ppo"),
        ("ppo", IMAGE, MOVE, "atari-ppo"),
        ("ppo", FEW, spaces.MultiDiscrete([2, 3]), "cartpole-ppo"),
        ("ppo", spaces.Dict({"a": FEW, "b": MANY}), MOVE, "lunarlander-ppo"),
        ("dqn", IMAGE, MOVE, "atari-dqn"),
        ("sac", FEW, MOVE, "cartpole-sac"),
        ("sac", MANY, TURN, "halfcheetah-sac"),
        ("crossq", FEW, TURN, "pendulum-crossq"),
        ("vtrace", FEW, spaces.MultiBinary(3), "cartpole-vtrace"),
    ],
)
def test_the_preset_of_the_most_similar_task_is_taken(
    algorithm: str, observation: gymnasium.Space[Any], action: gymnasium.Space[Any], preset: str
) -> None:
    assert nearest_preset(algorithm, observation, action) == preset


@pytest.mark.parametrize(
    ("algorithm", "action", "words"),
    [
        ("dqn", TURN, "dqn has no preset for continuous actions; here you can take a2c, .*sac"),
        ("td3", MOVE, "td3 has no preset for discrete actions"),
        (
            "dqn",
            spaces.MultiDiscrete([2, 3]),
            "dqn has no preset for MultiDiscrete actions; here you can take a2c, .*ppo",
        ),
        ("ppoo", MOVE, r"ppoo is not an algorithm of Surreal \(did you mean ppo\?\); here you"),
        ("rlx", MOVE, "rlx is not an algorithm"),
    ],
)
def test_an_algorithm_that_does_not_suit_is_refused(algorithm: str, action: gymnasium.Space[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        nearest_preset(algorithm, FEW, action)


def same(source: str, config: Config) -> bool:
    found = load_config(source)
    return found.model_copy(update={"python_path": []}) == config.model_copy(update={"python_path": []})


def test_a_preset_of_exactly_this_environment_is_taken_as_it_is(tmp_path: Path) -> None:
    assert same(write_source("Pendulum-v1", "sac", tmp_path), load_config("pendulum-sac"))


def test_the_goal_is_the_threshold_of_a_registered_environment() -> None:
    assert settings_for("MountainCarContinuous-v0", "ppo")["run"]["stop_at_return"] == 90.0
    assert settings_for("Taxi-v4", "dqn")["run"]["stop_at_return"] is not None
    assert settings_for(Bandit, "ppo")["run"]["stop_at_return"] is None


def test_a_class_of_a_module_is_named_by_it(tmp_path: Path) -> None:
    config = load_config(write_source(Bandit, "ppo", tmp_path))
    assert (config.env.id, config.name) == ("surreal.envs.examples:Bandit", "bandit-ppo")
    assert config.env.num_envs == load_config("cartpole-ppo").env.num_envs


def test_a_class_or_function_of_a_program_is_kept_by_value(tmp_path: Path) -> None:
    step = 0.25

    class Own(Bandit):
        def reset(self, **more: Any) -> Any:
            return super().reset(**more)[0] + step, {}

    def function() -> gymnasium.Env[Any, Any]:
        return Own()

    for make in (Own, function):
        env_id, kwargs, folder = by_value.name_env(make)
        assert (env_id, folder) == (by_value.ENV_ID, None)
        env = make_env(env_id, kwargs=kwargs, wrappers=(), frame_stack=1, training=True)
        assert env.reset(seed=0)[0] == pytest.approx(Bandit().reset(seed=0)[0] + step)
        env.close()


def test_code_that_is_not_what_was_kept_is_not_executed(own_data: Path) -> None:
    digest = by_value.keep(Bandit)
    (file,) = (own_data / "surreal" / "environments").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(EnvError, match="is not what was kept there"):
        by_value.make_kept(digest)
    with pytest.raises(EnvError, match="train with it again"):
        by_value.make_kept("../../elsewhere")
    assert not Path("hacked").exists()


def test_what_cannot_be_passed_on_is_named() -> None:
    lock = threading.Lock()

    def make() -> Any:
        return lock

    with pytest.raises(EnvError, match=r"make cannot be passed to other processes: .*lock.*\.py file"):
        by_value.keep(make)


def test_a_dict_and_a_config_are_files_as_well(tmp_path: Path) -> None:
    config = load_config("cartpole-dqn", ["learner.gamma=0.5"])
    assert same(write_source(config, None, tmp_path), config)
    plain = yaml.safe_load((tmp_path / "cartpole-dqn.yaml").read_text())
    plain["learner"]["gamma"] = 0.75
    assert load_config(write_source(plain, None, tmp_path)).learner.gamma == 0.75
    with pytest.raises(ConfigError, match=r"learner\.gama"):
        load_config(write_source({**plain, "learner": {"gama": 1}}, None, tmp_path))
    assert write_source("cartpole-dqn", None, tmp_path) == "cartpole-dqn"
    assert write_source(Path("my.yaml"), None, tmp_path) == "my.yaml"


def test_an_environment_needs_an_algorithm_and_settings_need_none(tmp_path: Path) -> None:
    for env, name in (("CartPole-v1", "'CartPole-v1'"), (Bandit, "Bandit")):
        with pytest.raises(ConfigError, match=f"{name} is an environment; name an algorithm"):
            write_source(env, None, tmp_path)
    for algorithm in (None, "ppo"):
        with pytest.raises(ConfigError, match=r"so give the class: train\(Bandit, "):
            write_source(Bandit(), algorithm, tmp_path)
    with pytest.raises(ConfigError, match="not with a dict"):
        write_source({}, "ppo", tmp_path)
    assert write_source("CartPole-v1", "PPO", tmp_path).endswith("cartpole-ppo.yaml")
    with pytest.raises(SurrealError, match="did you mean CartPole-v1"):
        write_source("CartPole-v9", "ppo", tmp_path)
