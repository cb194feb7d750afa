"""EnvList: steps single gymnasium environments in turn, for `LocalEnvPool` and the workers of `SubprocEnvPool`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.errors import EnvError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import EXECUTED_ACTION
from surreal.base.values import describe_unsound, is_sound, unsound_rows
from surreal.envs.actions import ActionAdapter, flat_mask, mask_width
from surreal.envs.pools.base import FaultCounter, OnError, describe_error, describe_observations, env_seeds
from surreal.envs.pools.columns import Columns, check_kinds, describe_leaf, leaf_paths
from surreal.envs.wrappers.steps import find_monitor

#: Makes one gymnasium environment.
EnvFactory = Callable[[], gymnasium.Env[Any, Any]]
#: Errors of NumPy for a value that is not a number, or too large.
_NO_NUMBER = (OverflowError, TypeError, ValueError)

StepFunction = Callable[[Any], tuple[Any, Any, bool, bool, dict[str, Any]]]


class EnvList:
    """k environments of one kind, whose columns are preallocated; one whose episode ends is reset in the same step.

    An environment that gives an impossible number (nan, infinite, or too large) loses its episode and begins another.
    `FaultCounter` limits that, and how often an environment that raises is made again.

    Args:
        seeds: for the first reset of each environment; an environment that is made again gets the next seed.
        on_error: "end" raises the exceptions of environments, "restart" makes the environment again.

    Raises:
        EnvError: the environments have different spaces, or spaces without arrays.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        seeds: Sequence[int],
        columns: Columns | None = None,
        *,
        on_error: OnError = "end",
        interventions: bool = False,
    ) -> None:
        if not env_fns:
            raise ValueError("a pool needs at least one environment")
        self.envs: list[gymnasium.Env[Any, Any]] = []
        self.lost: list[int] = []  #: those that lost their episode in the last step and show a first observation
        self.lost_episodes = 0
        self._env_fns = list(env_fns)
        self._seeds = list(seeds)
        self._faults = [FaultCounter() for _ in env_fns]
        self._num_remakes = [0] * len(env_fns)
        self._raised: list[int] = []
        self._on_error = on_error
        try:
            for make in env_fns:
                self.envs.append(make())
            self._check_spaces()
        except BaseException:
            self.close()
            raise
        self.observation_space = self.envs[0].observation_space
        self.obs_spec: ObsSpec = describe_observations(self.observation_space)
        self.adapter = ActionAdapter(self.envs[0].action_space)
        self._mask_width = mask_width(self.adapter.space)
        action = ArraySpec(EXECUTED_ACTION, self.adapter.shape, self.adapter.dtype)
        self.columns = columns or Columns.allocate(self.obs_spec, len(self.envs), self._mask_width, action)
        self._has_interventions = interventions
        self.has_mask = False
        self._step_fns = [self._step_of(index) for index in range(len(self.envs))]
        self._monitors = [find_monitor(env) for env in self.envs]
        self._returns = np.zeros(len(self.envs), np.float64)
        self._starts = [0] * len(self.envs)
        self._steps = 0
        self._stale: list[int] = []
        leaves = zip(leaf_paths(self.obs_spec.structure), self.obs_spec.leaves, self.columns.obs, strict=True)
        self._leaf_names = [f"observation {leaf.name}".rstrip() for leaf in self.obs_spec.leaves]
        self._writers = [(path, leaf, leaf.shape, array) for path, leaf, array in leaves]

    def reset(self) -> None:
        self.columns.action_mask[:] = True
        for index, seed in enumerate(self._seeds):
            obs, info = self._reset(index, seed)
            env = self.envs[index]
            check_kinds(obs, self.obs_spec, _name(env))
            for _, leaf in tree.with_paths(obs):
                if not is_sound(np.asarray(leaf)):
                    raise EnvError(f"{_name(env)} begins with an impossible observation: {np.asarray(leaf)}")
            self.has_mask = self.has_mask or (self._mask_width > 0 and "action_mask" in info)
            self._write(index, obs)
            self._write_mask(index, info)

    def step(self, actions: NDArray[Any]) -> list[int]:
        """Apply actions [k, *action_shape] in the agent's form; returns the indices of environments that ended."""
        columns = self.columns
        reward = columns.reward
        ended: list[int] = []
        env_actions = actions if self.adapter.is_plain else self.adapter.rows(actions)
        for index in self._stale:
            columns.terminated[index] = columns.truncated[index] = False
        if self.obs_spec.structure is None and not (self.has_mask or self._has_interventions):
            array, shape, ndarray = columns.obs[0], self.obs_spec.leaves[0].shape, np.ndarray
            for index, (step, action) in enumerate(zip(self._step_fns, env_actions, strict=True)):
                obs, value, terminated, truncated, info = step(action)
                # Assignment would silently broadcast a wrong shape.
                if np.shape(obs) != shape if obs.__class__ is not ndarray else obs.shape != shape:
                    raise _shape_error(self.envs[index], self.obs_spec.leaves[0], np.shape(obs))
                try:
                    reward[index] = value
                    array[index] = obs
                except _NO_NUMBER as error:
                    self._refuse(index, "a value that is not a number", error)
                    continue
                if terminated or truncated:
                    columns.terminated[index], columns.truncated[index] = terminated, truncated
                    ended.append(index)
            is_good = is_sound(array)
        else:
            for index, (step, action) in enumerate(zip(self._step_fns, env_actions, strict=True)):
                obs, value, terminated, truncated, info = step(action)
                if not self._take(index, obs, value, info):
                    continue
                if terminated or truncated:
                    columns.terminated[index], columns.truncated[index] = terminated, truncated
                    ended.append(index)
            is_good = all(map(is_sound, columns.obs))
        self._steps += 1
        self.lost = []
        if self._raised or not is_good or not is_sound(reward):
            ended = self._lose(ended)
        self._returns += reward
        for index in ended:
            self._finish(index)
        self._stale = ended + self.lost
        return ended

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _step_of(self, index: int) -> StepFunction:
        """Return the environment's `step`, wrapped with `on_error` "restart" so that it does not raise."""
        step: StepFunction = self.envs[index].step
        if self._on_error == "end":
            return step

        def guarded(action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            try:
                return step(action)
            except Exception as error:
                self._count_error(index, error)
                self._raised.append(index)
                seen = self.obs_spec.unflatten([leaf[index] for leaf in self.columns.obs])
                return seen, 0.0, False, False, {}

        return guarded

    def _take(self, index: int, obs: Any, reward: Any, info: Mapping[str, Any]) -> bool:
        """Write the outcome of a step; returns False if it holds something that is not a number, or no action."""
        try:
            self.columns.reward[index] = reward
            self._write(index, obs)
        except _NO_NUMBER as error:
            self._refuse(index, "a value that is not a number", error)
            return False
        if self.has_mask:
            self._write_mask(index, info)
        if self._has_interventions:
            executed = info.get(EXECUTED_ACTION)
            self.columns.is_intervention[index] = executed is not None
            try:
                if executed is not None:
                    self.columns.executed_action[index] = self.adapter.flat(executed)
            except ValueError as error:
                self._refuse(index, f'an info["{EXECUTED_ACTION}"] that cannot have been executed', error)
                return False
        return True

    def _refuse(self, index: int, what: str, error: Exception) -> None:
        problem = f"{self._who(index)} gives {what}: {describe_error(error)}"
        if self._on_error == "end":
            raise EnvError(problem) from error
        self._faults[index].add(problem, error)
        self._raised.append(index)
        self.columns.reward[index] = 0.0

    def _lose(self, ended: list[int]) -> list[int]:
        """Restart the environments whose step raised, or gave an impossible number; returns which others ended."""
        columns, lost = self.columns, set(self._raised)
        for name, array in (("reward", columns.reward), *zip(self._leaf_names, columns.obs, strict=True)):
            if not is_sound(array):
                for index in np.flatnonzero(unsound_rows(array)).tolist():
                    if index not in lost:
                        self._faults[index].add(f"{self._who(index)}: {describe_unsound({name: array[index]})}")
                        lost.add(index)
        self.lost = sorted(lost)
        for index in self.lost:
            self._restart(index)
        return [index for index in ended if index not in lost]

    def _who(self, index: int) -> str:
        return f"{_name(self.envs[index])} (environment {index})"

    def _count_error(self, index: int, error: Exception) -> None:
        self._faults[index].add(f"{self._who(index)} raised {describe_error(error)}", error)

    def _reset(self, index: int, seed: int | None = None, *, is_broken: bool = False) -> tuple[Any, dict[str, Any]]:
        """Reset an environment; one that is broken, or raises here, is made again and gets its next seed."""
        while True:
            try:
                if is_broken:
                    with suppress(Exception):
                        self.envs[index].close()
                    self.envs[index] = self._env_fns[index]()
                    self._step_fns[index] = self._step_of(index)
                    self._monitors[index] = find_monitor(self.envs[index])
                    self._num_remakes[index] += 1
                    (seed,) = env_seeds(self._seeds[index], 1, incarnation=self._num_remakes[index])
                return self.envs[index].reset(seed=seed)
            except Exception as error:
                if self._on_error == "end":
                    raise
                self._count_error(index, error)
                is_broken = True

    def _restart(self, index: int) -> None:
        """Start the next episode of an environment that lost its last one; it is made again if it raised."""
        self.lost_episodes += 1
        obs, info = self._reset(index, is_broken=index in self._raised)
        self._raised = [other for other in self._raised if other != index]
        monitor, columns = self._monitors[index], self.columns
        self._write(index, obs)
        if any(unsound_rows(leaf[index : index + 1]).any() for leaf in columns.obs):
            raise EnvError(f"{self._who(index)} begins with an impossible observation")
        self._write_mask(index, info)
        if monitor is not None:
            monitor.take_episode()
        columns.reward[index] = self._returns[index] = 0.0
        self._starts[index] = self._steps

    def _finish(self, index: int) -> None:
        """Store the final observation and the episode's numbers, and start the next episode."""
        columns, monitor = self.columns, self._monitors[index]
        for leaf, final in zip(columns.obs, columns.final_obs, strict=True):
            final[index] = leaf[index]
        obs, info = self._reset(index)
        self._write(index, obs)
        if self.has_mask:
            columns.final_mask[index] = columns.action_mask[index]
            self._write_mask(index, info)
        episode: tuple[float, int] | None = (float(self._returns[index]), self._steps - self._starts[index])
        if monitor is not None:
            # Read after the reset, which ends an episode that only a wrapper cut.
            episode = monitor.take_episode()
        columns.episode_return[index], columns.episode_length[index] = episode or (np.nan, 0)
        self._returns[index] = 0.0
        self._starts[index] = self._steps
        self._faults[index].clear()

    def _write(self, index: int, obs: Any) -> None:
        for path, leaf, shape, array in self._writers:
            value = obs
            for key in path:
                value = value[key]
            if np.shape(value) != shape:
                raise _shape_error(self.envs[index], leaf, np.shape(value))
            array[index] = value

    def _write_mask(self, index: int, info: Mapping[str, Any]) -> None:
        if self.has_mask:
            mask = info.get("action_mask")
            self.columns.action_mask[index] = True if mask is None else flat_mask(mask, self._mask_width)

    def _check_spaces(self) -> None:
        first = self.envs[0]
        for index, env in enumerate(self.envs):
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise EnvError(
                    f"environment {index} of the pool has observations {env.observation_space} and actions "
                    f"{env.action_space}, but environment 0 has {first.observation_space} and {first.action_space}"
                )


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _shape_error(env: gymnasium.Env[Any, Any], leaf: ArraySpec, got: tuple[int, ...]) -> EnvError:
    return EnvError(f"{_name(env)} gives {describe_leaf(leaf)} of shape {got}, but its space says {leaf.shape}")
