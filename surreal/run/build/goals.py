"""The functions of an environment with goals, for a replay that relabels them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.config import Config
from surreal.envs.players.make import is_game
from surreal.run.build.construct import refused
from surreal.run.build.environments import build_env

_KEYS = ("achieved_goal", "desired_goal")
GOAL_FUNCTIONS = ("compute_reward", "compute_terminated")
_TRIED_STEPS = 20


def goal_functions(config: Config) -> dict[str, Callable[..., Any]]:
    """Return `compute_reward` of the run's environment, which is made here, and `compute_terminated` if it has one."""
    if is_game(config.env.id):
        raise refused(config, "replay.class", f"is {config.replay.class_path!r}, but {config.env.id} is a game")
    if config.env.frame_stack > 1:
        problem = f"is {config.env.frame_stack}, but replay.class relabels single observations; set it to 1"
        raise refused(config, "env.frame_stack", problem)
    try:
        env = build_env(config, training=True)
    except EnvError as error:
        problem = f"which needs compute_reward of {config.env.id} in the learner's process: {error}"
        advice = "install the environment there, or choose another replay"
        raise refused(config, "replay.class", f"is {config.replay.class_path!r}, {problem}; {advice}") from error
    space = env.observation_space
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
    missing = [key for key in _KEYS if key not in keys]
    if missing or not env.has_wrapper_attr("compute_reward"):
        what = f"observations have no {' and no '.join(missing)}" if missing else "environment has no compute_reward"
        problem = f"is {config.replay.class_path!r}, but {config.env.id} has no goals: its {what}"
        advice = "choose an environment with goals, such as FetchReach-v4 or surreal/BitFlip-v0, or another replay"
        raise refused(config, "replay.class", f"{problem}; {advice}")
    functions = {name: env.get_wrapper_attr(name) for name in GOAL_FUNCTIONS if env.has_wrapper_attr(name)}
    _check_rewards(config, env, functions["compute_reward"])
    return functions


def _check_rewards(config: Config, env: gymnasium.Env[Any, Any], compute_reward: Callable[..., Any]) -> None:
    """Take some random steps, and compare their rewards with those of their goals."""
    env.reset(seed=0)
    env.action_space.seed(0)
    rows = []
    for _ in range(_TRIED_STEPS):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        rows.append((*(np.array(obs[key]) for key in _KEYS), float(reward)))
        if terminated or truncated:
            env.reset()
    achieved, desired, paid = (np.array(column) for column in zip(*rows, strict=True))
    expected = np.asarray(compute_reward(achieved, desired, {}))
    if expected.shape != paid.shape:
        problem = f"is {config.env.id}, whose compute_reward gives shape {list(expected.shape)} for {len(paid)} goals"
        raise refused(config, "env.id", f"{problem}; it must give one reward for each, [{len(paid)}]")
    if not np.allclose(paid, expected, rtol=1e-3, atol=1e-5):
        place = int(np.abs(paid - expected).argmax())
        problem = f"is {config.env.id}, which paid {paid[place]:g} where its compute_reward gives {expected[place]:g}"
        need = "HindsightReplay needs rewards that follow from goals"
        raise refused(config, "env.id", f"{problem}; {need}: leave out wrappers that change rewards or goals")
