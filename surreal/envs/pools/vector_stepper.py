"""VectorStepper: batches of a gymnasium vector environment, exact in each of its three autoreset modes.

NEXT_STEP: the step after an end ignores the action of that environment, and returns the first observation of its next
episode with reward 0. Its LAST row comes at once, its FIRST row one batch later, and it needs no action in between.
SAME_STEP: the step returns the next first observation, and the final one in info["final_obs"].
DISABLED: the environment resets nothing; the stepper does, with the option reset_mask.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs, StepBatch
from surreal.base.values import LARGEST, is_sound
from surreal.envs.actions import ActionAdapter
from surreal.envs.atari.vector import AtariVector
from surreal.envs.pools.base import Seed, describe_unsound_step, env_seeds
from surreal.envs.pools.columns import describe_leaf
from surreal.envs.pools.rows import NO_IDS, LastRows, LiveRows, RowJoiner


class VectorStepper:
    """Makes a `StepBatch` of every vector step, without work for single rows if nothing began or ended."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], obs_spec: ObsSpec, seed: Seed, joiner: RowJoiner
    ) -> None:
        self.num_envs = envs.num_envs
        self.observation_space = envs.single_observation_space
        self.obs_spec = obs_spec
        self.adapter = ActionAdapter(envs.single_action_space)
        self._envs = envs
        self._seed = seed
        self._joiner = joiner
        self._mode = _autoreset_mode(envs)
        self._shapes = [(self.num_envs, *leaf.shape) for leaf in obs_spec.leaves]
        self._is_plain = obs_spec.is_array
        self._dtype = obs_spec.leaves[0].dtype
        self._is_float = self._dtype.kind == "f" and self._dtype.itemsize >= 4
        self._ids = np.arange(self.num_envs)
        self._has_mask = False
        self._monitor = envs if isinstance(envs, AtariVector) else None
        self._waiting = NO_IDS  # ended at the last step, so the next one ignores their actions
        self._returns = np.zeros(self.num_envs, np.float64)
        self._starts = np.zeros(self.num_envs, np.int64)
        self._steps = 0
        self.lost_episodes = 0

    def reset(self) -> StepBatch:
        """Start all environments; all rows are FIRST."""
        obs, info = self._envs.reset(seed=self._reset_seed())  # type: ignore[arg-type]
        self._has_mask = "action_mask" in info
        masks = self._masks(info) if self._has_mask else None
        return self._joiner.live(LiveRows(self._ids, self._leaves(obs), self._returns, self._ids, masks))

    def step(self, actions: NDArray[Any]) -> StepBatch:
        obs, reward, terminated, truncated, info = self._envs.step(self.adapter.batch(actions))
        self._steps += 1
        self._returns += reward
        first, self._waiting = self._waiting, NO_IDS
        is_as_described = self._is_plain and obs.shape == self._shapes[0] and obs.dtype == self._dtype
        leaves = [obs] if is_as_described else self._leaves(obs)
        # The squared length in one call, as in `is_sound`, at every step of the fastest environments.
        is_short = is_as_described and self._is_float and np.vdot(obs, obs) <= LARGEST
        if not (is_sound(reward) and (is_short or all(map(is_sound, leaves)))):
            why = "because its environments cannot be reset one by one"
            raise EnvError(f"{self._envs} cannot continue, {why}: {describe_unsound_step(obs, reward)}")
        masks = self._masks(info) if self._has_mask else None
        if not np.count_nonzero(terminated) and not np.count_nonzero(truncated):
            if len(first):
                return self._joiner.live(LiveRows(self._ids, leaves, reward, first, masks))
            return self._joiner.steady(self.obs_spec.unflatten(leaves), reward, masks)
        is_ended = np.logical_or(terminated, truncated)
        ended = is_ended.nonzero()[0]
        returns, lengths = self._returns.take(ended), self._steps - self._starts.take(ended)
        self._returns[ended] = 0.0
        if self._monitor is not None:
            returns, lengths = self._monitor.take_episodes(ended)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._starts[ended] = self._steps + 1
            self._waiting = ended
            running = np.logical_not(is_ended).nonzero()[0]
            whole = LiveRows(self._ids, leaves, reward, first, masks)
            return self._joiner.reorder(ended, running, whole, terminated, truncated, returns, lengths)
        self._starts[ended] = self._steps
        outcome = reward.take(ended), terminated.take(ended), truncated.take(ended), returns, lengths
        last = LastRows(ended, *self._final_obs(leaves, masks, info, ended), *outcome)
        if self._mode is AutoresetMode.DISABLED:
            leaves, masks = self._reset_some(leaves, masks, is_ended)
        return self._joiner.join(last, LiveRows(self._ids, leaves, reward, ended, masks))

    def close(self) -> None:
        self._envs.close()

    def _reset_some(
        self, leaves: list[NDArray[Any]], masks: NDArray[np.bool_] | None, is_ended: NDArray[np.bool_]
    ) -> tuple[list[NDArray[Any]], NDArray[np.bool_] | None]:
        """Reset the environments that ended; returns the rows with their first observations."""
        # Copy before the reset, which may write into the same arrays.
        leaves = [leaf.copy() for leaf in leaves]
        obs, info = self._envs.reset(options={"reset_mask": is_ended})
        for leaf, new_leaf in zip(leaves, self._leaves(obs), strict=True):
            leaf[is_ended] = new_leaf[is_ended]
        if masks is not None:
            masks = np.where(is_ended[:, None], self._masks(info), masks)
        return leaves, masks

    def _leaves(self, obs: Obs) -> list[NDArray[Any]]:
        leaves = self.obs_spec.flatten(obs)
        for index, (array, shape) in enumerate(zip(leaves, self._shapes, strict=True)):
            if array.shape != shape:
                name = describe_leaf(self.obs_spec.leaves[index])
                problem = f"gives {name} of shape {array.shape}, but its space says {shape}"
                raise EnvError(f"the vector environment {problem}")
        return leaves

    def _final_obs(
        self,
        leaves: list[NDArray[Any]],
        masks: NDArray[np.bool_] | None,
        info: dict[str, Any],
        ended: NDArray[np.int64],
    ) -> tuple[list[NDArray[Any]], NDArray[np.bool_] | None]:
        """Copy the final observations, [m, *shape] per leaf, and their action masks."""
        if self._mode is AutoresetMode.DISABLED:
            return [leaf.take(ended, 0) for leaf in leaves], None if masks is None else masks.take(ended, 0)
        if masks is not None:
            masks = self._masks(info.get("final_info", {})).take(ended, 0)
        final = info.get("final_obs")
        if final is None:
            raise EnvError('the vector environment resets in the same step, but gave no info["final_obs"]')
        if isinstance(final, np.ndarray) and final.dtype == np.object_:
            rows = [self.obs_spec.flatten(final[index]) for index in ended]
            return [np.stack([row[leaf] for row in rows]) for leaf in range(len(leaves))], masks
        return [leaf.take(ended, 0) for leaf in self.obs_spec.flatten(final)], masks

    def _masks(self, info: dict[str, Any]) -> NDArray[np.bool_]:
        """Read the action masks [num_envs, n]."""
        if "action_mask" not in info:
            raise EnvError('the vector environment gave info["action_mask"] at reset, but not at every step')
        return np.asarray(info["action_mask"]).astype(np.bool_)

    def _reset_seed(self) -> int | list[int]:
        seeds = env_seeds(self._seed, self.num_envs)
        has_single_envs = gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv
        # Native vector environments use one generator for all environments.
        return seeds if isinstance(self._envs.unwrapped, has_single_envs) else seeds[0]


def _autoreset_mode(envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = envs.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode) if not isinstance(mode, AutoresetMode) else mode
    except ValueError as error:
        raise EnvError(
            f'the vector environment names no autoreset mode; set metadata["autoreset_mode"] (it is {mode!r})'
        ) from error
