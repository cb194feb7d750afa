"""The wrapper `intervention`: an expert, of any class, may replace the agent's actions and judge episodes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, SupportsFloat, get_args

import gymnasium

from surreal.base.errors import EnvError
from surreal.base.ranges import checked
from surreal.base.types import EXECUTED_ACTION
from surreal.envs.actions import ActionAdapter

AnyEnv = gymnasium.Env[Any, Any]
#: What an expert's `mark()` may return after a step: how the episode ends here, if it does.
Mark = Literal["success", "failure", "discard"]
#: Called with an observation and the agent's action; returns the action to execute, or None for the agent's.
Expert = Callable[[Any, Any], Any]


class Intervention(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets an expert replace actions, which `info["executed_action"]` then names.

        class Expert:
            def __call__(self, obs, action):    # the action to execute; None: the agent's
                return 0 if obs[0] > 1.0 else None

    An expert may also have `reset(obs)`, called at the beginning of an episode, and `mark()`, called after each step:
    "success" and "failure" end the episode with a reward and `info["success"]`, "discard" cuts it with
    `info["discard"]`, and None continues.

    Args:
        expert: `module:Class` or `module:function`, or an object that is called in the same way. The constructor of a
            class may take the environment as `env`.
        args: other arguments of the class.
        success_reward: added to the reward of a step that is marked as a success.
        failure_reward: added to that of a failure.

    Raises:
        EnvError: the expert cannot be imported or made; or, in `step`, it failed, or `mark()` returned something else.
    """

    @checked
    def __init__(
        self,
        env: AnyEnv,
        expert: str | Expert,
        *,
        args: Mapping[str, Any] | None = None,
        success_reward: float = 1.0,
        failure_reward: float = 0.0,
    ) -> None:
        super().__init__(env)
        self.expert = make_expert(expert, env, args or {}) if isinstance(expert, str) else expert
        self._rewards = {"success": success_reward, "failure": failure_reward, "discard": 0.0}
        self._adapter = ActionAdapter(env.action_space)
        self.is_discarded = False  #: whether the last step was marked as the end of an episode to be discarded
        self._obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._obs, info = self.env.reset(seed=seed, options=options)
        if hasattr(self.expert, "reset"):
            self.expert.reset(self._obs)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        executed = self.expert(self._obs, action)
        if executed is not None:
            try:
                (executed,) = self._adapter.rows(self._adapter.flat(executed)[None])
            except ValueError as error:
                raise EnvError(f"the expert's action cannot be executed: {error}") from error
        elif action is None:
            raise EnvError("the expert returns no action, and there is no agent that would choose one")
        self._obs, reward, terminated, truncated, info = self.env.step(action if executed is None else executed)
        if executed is not None:
            info = {EXECUTED_ACTION: executed, **info}  # an environment may replace that, too
        mark = self.expert.mark() if hasattr(self.expert, "mark") else None
        self.is_discarded = mark == "discard"
        if mark is None:
            return self._obs, reward, terminated, truncated, info
        if mark not in self._rewards:
            raise EnvError(f"the expert's mark() returns {mark!r:.40}; it must be one of {get_args(Mark)}, or None")
        reward = float(reward) + self._rewards[mark]
        if self.is_discarded:
            return self._obs, reward, False, True, {**info, "discard": True}
        return self._obs, reward, True, False, {**info, "success": mark == "success"}


def make_expert(path: str, env: AnyEnv, args: Mapping[str, Any]) -> Any:
    """Import `module:name`, and call it with `args` if it is a class; raises `EnvError` if that fails."""
    module, separator, name = path.partition(":")
    if not separator:
        raise EnvError(f"expert is {path!r}; it must be module:Class or module:function")
    try:
        found = getattr(importlib.import_module(module), name)
        if inspect.isclass(found):
            has_env = "env" in inspect.signature(found).parameters
            found = found(**({"env": env} if has_env else {}), **args)
        elif args:
            raise TypeError(f"it is not a class, and takes no arguments {sorted(args)}")
    except Exception as error:
        raise EnvError(f"expert {path} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise EnvError(f"expert {path} is a {type(found).__name__}, which cannot be called with (obs, action)")
    return found
