"""Common parts of pools: seeds, episode counts, limits on faults; for the contract see `surreal.base.contracts`."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.contracts import EnvPool as EnvPool
from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs, StepBatch
from surreal.base.values import describe_unsound
from surreal.envs.actions import ActionAdapter

logger = logging.getLogger(__name__)

#: Seed of a pool: the entropy of a `numpy.random.SeedSequence`, for example (run seed, agent index).
Seed = int | Sequence[int] | None
#: Reaction to an exception of an environment: raise it, or cut the episode and make the environment again.
OnError = Literal["end", "restart"]

#: Episodes of one environment that may be lost without a complete one between them.
_MOST_IN_A_ROW = 10
_LOG_INTERVAL_S = 10.0


class EpisodeCounter:
    """Counts episodes and averages the last 100, for `EnvPool.metrics`."""

    def __init__(self) -> None:
        self.episodes = 0
        self._returns: deque[float] = deque(maxlen=100)
        self._lengths: deque[int] = deque(maxlen=100)

    def add(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Count the episodes whose return is not nan."""
        for episode_return, length in zip(returns.tolist(), lengths.tolist(), strict=True):
            if episode_return == episode_return:
                self.episodes += 1
                self._returns.append(episode_return)
                self._lengths.append(length)

    def metrics(self) -> dict[str, float]:
        found = {"env/episodes_total": float(self.episodes)}
        if self._returns:
            found["env/episode_return_recent"] = sum(self._returns) / len(self._returns)
            found["env/episode_length_recent"] = sum(self._lengths) / len(self._lengths)
        return found


class FaultCounter:
    """Counts the faults of one environment: exceptions and impossible numbers, each of which loses an episode.

    Each complete episode clears the count: an environment with rare faults runs forever, and a broken one ends the run.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row = 0
        self._untold = 0
        self._told_s = float("-inf")

    def add(self, fault: str, cause: Exception | None = None) -> None:
        """Count a fault, logged now and then; raises `EnvError` after too many without a complete episode."""
        self._in_a_row += 1
        if self._in_a_row > _MOST_IN_A_ROW:
            lost = f"{self._in_a_row} episodes were lost like this, and none between them came to its end"
            raise EnvError(f"{fault}; {lost}") from cause
        self._untold += 1
        now_s = self._clock()
        if now_s - self._told_s >= _LOG_INTERVAL_S:
            times = f" ({self._untold} faults since the last message)" if self._untold > 1 else ""
            logger.warning("%s; its episode is cut, and another begins%s", fault, times, exc_info=cause)
            self._told_s, self._untold = now_s, 0

    def clear(self) -> None:
        self._in_a_row = 0


def describe_error(error: BaseException) -> str:
    """Describe an exception of an environment in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def describe_unsound_step(obs: Obs, reward: Any) -> str:
    """Name the first impossible number of a step; "" if there is none."""
    leaves = {f"observation {path}".rstrip(): np.asarray(leaf) for path, leaf in tree.with_paths(obs)}
    return describe_unsound({"reward": np.asarray(reward), **leaves})


def checked_actions(
    adapter: ActionAdapter, actions: NDArray[Any], env_ids: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Convert actions and their environments."""
    actions, ids = np.asarray(actions, adapter.dtype), np.asarray(env_ids, np.int64)
    if actions.shape != (len(ids), *adapter.shape):
        wanted = (len(ids), *adapter.shape)
        raise ValueError(f"actions of {len(ids)} rows must have shape {wanted}, got {actions.shape}")
    return actions, ids


def check_awaited(ids: NDArray[np.int64], awaited: NDArray[np.bool_]) -> None:
    """Check that each of these environments needs an action, and gets one."""
    if ((ids < 0) | (ids >= len(awaited))).any() or len(np.unique(ids)) != len(ids) or not awaited[ids].all():
        waiting = np.flatnonzero(awaited).tolist()
        raise ValueError(f"actions came for environments {ids.tolist()}, but {waiting} wait for one")


def env_seeds(seed: Seed, num_envs: int, *, incarnation: int = 0) -> list[int]:
    """Draw one independent seed for each environment; the same entropy gives the same seeds, None fresh ones.

    `incarnation` counts the restarts of the environments; each uses other seeds.
    """
    spawn_key = (incarnation,) if incarnation else ()
    children = np.random.SeedSequence(seed, spawn_key=spawn_key).spawn(num_envs)
    # 31 bits: some simulators keep the seed in a signed 32-bit integer.
    return [int(child.generate_state(1)[0] >> 1) for child in children]


def describe_observations(space: gymnasium.Space[Any]) -> ObsSpec:
    """Describe an environment's observations."""
    try:
        return ObsSpec.from_space(space)
    except ValueError as error:
        raise EnvError(str(error)) from error


def empty_batch(obs_spec: ObsSpec, closed_ids: NDArray[np.int64] | None = None) -> StepBatch:
    """Build a batch without rows: nothing was ready, or environments closed."""
    flags = np.zeros(0, np.bool_)
    return StepBatch(
        kind=np.zeros(0, np.uint8),
        env_ids=np.zeros(0, np.int64),
        obs=obs_spec.unflatten([np.zeros((0, *leaf.shape), leaf.dtype) for leaf in obs_spec.leaves]),
        reward=np.zeros(0, np.float32),
        terminated=flags,
        truncated=flags,
        explore=flags,
        record=flags,
        num_last=0,
        info={},
        closed_ids=np.zeros(0, np.int64) if closed_ids is None else closed_ids,
    )
