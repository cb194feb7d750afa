"""Environments for a plain loop: `reset` returns (obs, info), `step` returns (obs, reward, done, info).

    env = Visualization(EpisodeMonitor(GymEnv("CartPole-v1")))
    obs, info = env.reset()
    while True:
        action = agent.act(obs)
        new_obs, reward, done, info = env.step(action)
        sender.send([obs, new_obs], action, reward, done, info)
        obs = new_obs
        if done:
            obs, info = env.reset()
            agent.reset()

`info` always has "terminated" and "truncated"; `done` is true if one of them is. `new_obs` of a done step is the true
final observation. For an environment with wrappers, `info["raw_episode"]` is None, or the return and length of the
episode below the training wrappers that has just ended.

A loop may omit the two calls of `reset`. Then the step after a done one resets the environment: it ignores its action,
returns the first observation of the new episode with reward 0, and sets `info["phantom"]`. The sender skips such steps.
An agent with state in an episode (a recurrent state, correlated noise) needs its `reset` after such a step.
Pools (`surreal.envs.pools.base`) are faster and have no such steps.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from surreal.base.errors import EnvError
from surreal.base.types import EXECUTED_ACTION, Obs
from surreal.envs.actions import ActionAdapter
from surreal.envs.make import make_env, record_video
from surreal.envs.wrappers.named import WrapperSpec
from surreal.envs.wrappers.steps import find_monitor


class Env(ABC):
    """An environment of a plain loop."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    @abstractmethod
    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode; a seed makes it and the following ones reproducible."""

    @abstractmethod
    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        """Apply one action."""

    def render_to(self, mode: str) -> None:
        """Choose the render mode before the first `reset`; raises `EnvError` if it is not supported."""
        raise EnvError(f"{type(self).__name__} cannot be drawn; use an environment that renders, or leave show_ui out")

    def record_to(self, folder: str, every: int) -> None:
        """Record one of every `every` episodes, from the first `reset` on; raises `EnvError` if it cannot."""
        raise EnvError(f"{type(self).__name__} cannot be recorded; use an environment that renders")

    @abstractmethod
    def close(self) -> None:
        """Release resources; may be called twice."""


class Wrapper(Env):
    """An environment around another one; a subclass overrides what it changes.

    Attributes of inner environments can be read from the outermost: `Visualization(EpisodeMonitor(env)).episodes`.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for missing attributes; `env` is missing during a copy.
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        try:
            return getattr(self.env, name)
        except AttributeError:
            raise AttributeError(f"neither {type(self).__name__} nor the environment in it has {name!r}") from None

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        return self.env.step(action)

    def render_to(self, mode: str) -> None:
        self.env.render_to(mode)

    def record_to(self, folder: str, every: int) -> None:
        self.env.record_to(folder, every)

    def close(self) -> None:
        self.env.close()


class GymEnv(Env):
    """A gymnasium environment in a plain loop.

    Args:
        env: id of a registered environment, or an environment.
        kwargs: arguments of the environment's constructor, with an id only.

    Raises:
        EnvError: no such environment, or a package that it needs is missing.
    """

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any) -> None:
        if kwargs and not isinstance(env, str):
            raise ValueError(f"arguments {sorted(kwargs)} need an environment's id, not an environment")
        self._id = env if isinstance(env, str) else None
        self._kwargs = kwargs
        self.env: gymnasium.Env[Any, Any] = self._make(env) if isinstance(env, str) else env
        self._monitor = find_monitor(self.env)
        self._adapter = ActionAdapter(self.env.action_space)
        self.observation_space = self.env.observation_space
        self.action_space = self._adapter.space
        self._is_done = False

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        self._is_done = False
        obs, info = self.env.reset(seed=seed)
        return obs, self._tell(info, terminated=False, truncated=False)

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        if self._is_done:
            obs, info = self.reset()
            return obs, 0.0, False, {**info, "phantom": True}
        (env_action,) = self._adapter.rows(np.asarray(action, self._adapter.dtype)[None])
        obs, reward, terminated, truncated, info = self.env.step(env_action)
        self._is_done = bool(terminated or truncated)
        return obs, float(reward), self._is_done, self._tell(info, terminated=terminated, truncated=truncated)

    def render_to(self, mode: str) -> None:
        if self.env.render_mode == mode:
            return
        if self._id is None:
            raise EnvError(f"the environment was made with render_mode {self.env.render_mode!r}, not {mode!r}")
        self.env.close()
        self.env = self._make(self._id, render_mode=mode)
        self._monitor = find_monitor(self.env)

    def record_to(self, folder: str, every: int) -> None:
        self.render_to("rgb_array")
        self.env = record_video(self.env, folder, every=every)

    def close(self) -> None:
        self.env.close()

    def _tell(self, info: dict[str, Any], *, terminated: bool, truncated: bool) -> dict[str, Any]:
        told = {**info, "terminated": bool(terminated), "truncated": bool(truncated)}
        if EXECUTED_ACTION in info and not self._adapter.is_plain:
            told[EXECUTED_ACTION] = self._adapter.flat(info[EXECUTED_ACTION])
        if self._monitor is not None:
            told["raw_episode"] = self._monitor.take_episode()
        return told

    def _make(self, env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Make the environment; called again to change the render mode."""
        return make_env(env_id, kwargs=self._kwargs, render_mode=render_mode)


class Atari(GymEnv):
    """An Atari game with the usual preprocessing: [84, 84] uint8 gray frames, four frames per step.

    `FrameStack(Atari("Pong"), 4)` gives the stacks that image networks expect.

    Args:
        name: the game's name, `SpaceInvaders`, or an id, `ALE/SpaceInvaders-v5`.
        training: end an episode with every lost life, and keep only the sign of rewards, as in DQN. With False,
            episodes are whole games with raw rewards, for evaluation. `EpisodeMonitor` always counts whole games and
            raw rewards.
        preprocessing: arguments of `AtariPreprocessing`: noop_max, frame_skip, screen_size, and fire_on_reset, for
            games that wait for FIRE.
        kwargs: arguments of ale-py's environment.

    Raises:
        EnvError: ale-py is not installed, or has no such game.
    """

    def __init__(
        self, name: str, *, training: bool = True, preprocessing: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if importlib.util.find_spec("ale_py") is None:
            hint = "run in the clone: pip install -e '.[atari]'"
            raise EnvError(f"Atari({name!r}) needs ale-py, which is not installed; {hint}")
        self._wrappers = (
            WrapperSpec("atari", dict(preprocessing or {})),
            WrapperSpec("life_loss"),
            WrapperSpec("reward_sign"),
        )
        self._training = training
        super().__init__(name if "/" in name else f"ALE/{name}-v5", **kwargs)

    def _make(self, env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        return make_env(
            env_id, kwargs=self._kwargs, wrappers=self._wrappers, training=self._training, render_mode=render_mode
        )
