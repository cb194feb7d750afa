"""LocalEnvPool: environments in this process, single gymnasium environments or one vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import EnvPool
from surreal.base.types import StepBatch
from surreal.envs.pools.base import (
    EpisodeCounter,
    OnError,
    Seed,
    check_awaited,
    describe_observations,
    empty_batch,
    env_seeds,
)
from surreal.envs.pools.env_list import EnvFactory, EnvList
from surreal.envs.pools.rows import LiveRows, RowJoiner
from surreal.envs.pools.vector_stepper import VectorStepper


class LocalEnvPool(EnvPool):
    """Environments that step in the caller's thread, in `recv`, once all rows that need an action have one.

    Args:
        envs: functions that make one gymnasium environment each, or a gymnasium vector environment in any of its
            autoreset modes.
        seed: entropy from which every environment gets its own seed.
        explore: whether the agent may explore in these environments.
        record: whether their steps are sent as experience.
        on_error: "end" raises the exceptions of environments; "restart" cuts the episode and makes the environment
            again (not those of a vector environment).
        interventions: whether environments may replace actions, and then report them in `info["executed_action"]` (not
            those of a vector environment).

    Raises:
        EnvError: the environments cannot be made, or their spaces differ or are not supported.
    """

    def __init__(
        self,
        envs: Sequence[EnvFactory] | gymnasium.vector.VectorEnv[Any, Any, Any],
        *,
        seed: Seed = None,
        explore: bool = True,
        record: bool = True,
        on_error: OnError = "end",
        interventions: bool = False,
    ) -> None:
        stepper: VectorStepper | _ListStepper
        if isinstance(envs, gymnasium.vector.VectorEnv):
            if interventions:
                raise ValueError("interventions is true, but a vector environment reports none; leave it out")
            spec = describe_observations(envs.single_observation_space)
            joiner = RowJoiner(spec, envs.num_envs, explore=explore, record=record)
            stepper = VectorStepper(envs, spec, seed, joiner)
        else:
            singles = EnvList(envs, env_seeds(seed, len(envs)), on_error=on_error, interventions=interventions)
            joiner = RowJoiner(singles.obs_spec, len(envs), explore=explore, record=record)
            stepper = _ListStepper(singles, joiner, interventions=interventions)
        self._stepper = stepper
        self.num_envs = stepper.num_envs
        self.observation_space = stepper.observation_space
        self.obs_spec = stepper.obs_spec
        self.action_space = stepper.adapter.space
        self._dtype = stepper.adapter.dtype
        self._shape = stepper.adapter.shape
        self._empty = empty_batch(self.obs_spec)
        # Every row always holds a legal action, because vector environments also check those that they ignore.
        self._actions = np.repeat(stepper.adapter.default()[None], self.num_envs, axis=0)
        self._given: NDArray[Any] = self._actions
        self._all_ids = np.arange(self.num_envs).tobytes()
        self._awaited = self._all_ids
        self._has_action = np.zeros(self.num_envs, np.bool_)  # of the awaited environments, while only some were sent
        self._num_missing = 0
        self._is_started = False
        self._is_closed = False
        self._steps = 0
        self._episodes = EpisodeCounter()

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Step the environments; returns an empty batch at once while rows of the last batch still need an action."""
        if self._num_missing:
            return self._empty
        if self._is_started:
            batch = self._stepper.step(self._given)
        else:
            batch = self._stepper.reset()
            self._is_started = True
        num_last = batch.num_last
        if num_last:
            self._episodes.add(batch.info["episode_return"][:num_last], batch.info["episode_length"][:num_last])
            self._await(batch.env_ids[num_last:])
        elif len(batch.env_ids) == self.num_envs:
            self._awaited = self._all_ids
            self._num_missing = self.num_envs
        else:
            self._await(batch.env_ids)
        return batch

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Pass actions; the next `recv` reads them, so they must not change until then."""
        actions = np.asarray(actions, self._dtype)
        ids = np.asarray(env_ids, np.int64)
        count = len(ids)
        if actions.shape != (count, *self._shape):
            raise ValueError(f"actions of {count} rows must have shape {(count, *self._shape)}, got {actions.shape}")
        if self._num_missing == self.num_envs and ids.tobytes() == self._all_ids:
            self._given = actions
            self._steps += count
            self._num_missing = 0
            return
        if count == self._num_missing and ids.tobytes() == self._awaited:
            self._num_missing = 0
        else:
            self._take(ids)
        self._actions[ids] = actions
        self._given = self._actions
        self._steps += count

    def metrics(self) -> dict[str, float]:
        """Return env steps, episodes, their mean return and length, and lost episodes."""
        counts = {"env/steps_total": float(self._steps), "env/lost_episodes_total": float(self._stepper.lost_episodes)}
        return {**counts, **self._episodes.metrics()}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._stepper.close()

    def _await(self, ids: NDArray[np.int64]) -> None:
        self._awaited = ids.tobytes()
        self._num_missing = len(ids)

    def _take(self, ids: NDArray[np.int64]) -> None:
        """Record that some of the awaited rows have an action."""
        awaited = np.zeros(self.num_envs, np.bool_)
        if self._num_missing:
            awaited[np.frombuffer(self._awaited, np.int64)] = True
            awaited[self._has_action] = False
        check_awaited(ids, awaited)
        self._has_action[ids] = True
        self._num_missing -= len(ids)
        if not self._num_missing:
            self._has_action[:] = False


class _ListStepper:
    """Makes batches of an `EnvList`, in which every environment needs an action in every batch."""

    def __init__(self, envs: EnvList, joiner: RowJoiner, *, interventions: bool) -> None:
        self.num_envs = len(envs.envs)
        self.observation_space = envs.observation_space
        self.obs_spec = envs.obs_spec
        self.adapter = envs.adapter
        self._envs = envs
        self._joiner = joiner
        self._obs = envs.obs_spec.unflatten(envs.columns.obs)
        self._ids = np.arange(self.num_envs)
        self._mask: NDArray[np.bool_] | None = None
        self._has_interventions = interventions

    @property
    def lost_episodes(self) -> int:
        return self._envs.lost_episodes

    def reset(self) -> StepBatch:
        self._envs.reset()
        self._mask = self._envs.columns.action_mask if self._envs.has_mask else None
        return self._joiner.live(self._live(self._ids))

    def step(self, actions: NDArray[Any]) -> StepBatch:
        batch = self._step(actions)
        return self._envs.columns.with_interventions(batch) if self._has_interventions else batch

    def _step(self, actions: NDArray[Any]) -> StepBatch:
        ended, lost = self._envs.step(actions), self._envs.lost
        columns = self._envs.columns
        if not ended and not lost:
            return self._joiner.steady(self._obs, columns.reward, self._mask)
        # Their next episode begins in the same batch.
        last = columns.last_rows(np.array(ended, np.int64), has_mask=self._mask is not None)
        return self._joiner.join(last, self._live(np.array([*ended, *lost])), np.array(lost, np.int64))

    def close(self) -> None:
        self._envs.close()

    def _live(self, first: NDArray[np.int64]) -> LiveRows:
        columns = self._envs.columns
        return LiveRows(self._ids, columns.obs, columns.reward, first, self._mask)
