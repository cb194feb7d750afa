"""The one environment interface of an agent: a pool of environments with `recv` and `send`.

The agent loop drives every pool the same way, whatever is behind it:

    batch = pool.recv(timeout_s=0.1)                     # LAST rows first, then the rows that want an action
    action = agent.act_batch(acting rows of batch)
    sender.send_batch(batch, action)
    pool.send(action.actions, batch.env_ids[batch.num_last:])

Promises of every pool: an environment that ends hands over its true final observation as a LAST row, and its next
FIRST row in the same batch or in a later one; no row mixes two episodes; an environment gone without an observation is
named in `closed_ids`. The arrays of a batch are valid until the next `recv`, and are not to be written to.

Optional columns of `StepBatch.info`, each [N, ...]:

    episode_return   float64, on LAST rows the sum of the raw rewards, nan elsewhere; only present if num_last > 0.
                     nan on a LAST row too where a wrapper cut an episode that goes on below it (a lost life in Atari)
    episode_length   int64, on LAST rows the steps of the episode, 0 elsewhere; present with `episode_return`
    action_mask      bool [N, n], which of the n discrete actions are legal, from the environment's info["action_mask"]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.base.types import StepBatch

#: What a pool takes as seed: the entropy of a `numpy.random.SeedSequence`, for example (run seed, agent index).
Seed = int | Sequence[int] | None


class EnvPool(ABC):
    """Environments that are driven together; see the module's text for the contract."""

    num_envs: int  #: slots: every id in `env_ids` is smaller
    observation_space: gymnasium.Space[Any]  #: of one environment
    action_space: gymnasium.Space[Any]  #: of one environment: Discrete from 0, MultiDiscrete, MultiBinary or Box
    obs_spec: ObsSpec  #: the leaves of one observation

    @abstractmethod
    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait for rows; an empty batch says that nothing was ready within `timeout_s`."""

    @abstractmethod
    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Hand over actions [n, *action_shape] for the rows that want one, `env_ids` [n] naming them.

        Raises:
            ValueError: an environment that waits for no action is named, or the shape is wrong.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the environments; may be called twice."""

    def awaited(self) -> str:
        """What a `recv` that gives no rows waits for, in a few words; "" where the pool says so itself."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Counters since the start, and means over the last episodes."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class EpisodeCounter:
    """Counts episodes and averages the last of them, for `EnvPool.metrics`.

    Args:
        window: episodes that the means span; more is smoother and older.
    """

    def __init__(self, window: int = 100) -> None:
        self.episodes = 0
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)

    def add(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Count the episodes whose return is known."""
        for episode_return, length in zip(returns.tolist(), lengths.tolist(), strict=True):
            if episode_return == episode_return:
                self.episodes += 1
                self._returns.append(episode_return)
                self._lengths.append(length)

    def metrics(self) -> dict[str, float]:
        """Return the count, and the means once an episode ended."""
        found = {"env/episodes_total": float(self.episodes)}
        if self._returns:
            found["env/episode_return_recent"] = sum(self._returns) / len(self._returns)
            found["env/episode_length_recent"] = sum(self._lengths) / len(self._lengths)
        return found


def env_seeds(seed: Seed, num_envs: int, *, incarnation: int = 0) -> list[int]:
    """Draw one independent seed for each environment.

    Args:
        seed: entropy; the same entropy gives the same seeds, and None gives fresh ones.
        num_envs: how many.
        incarnation: how often the environments were restarted; another one gives other seeds.
    """
    spawn_key = (incarnation,) if incarnation else ()
    children = np.random.SeedSequence(seed, spawn_key=spawn_key).spawn(num_envs)
    # 31 bits: some simulators keep the seed in a signed 32-bit integer.
    return [int(child.generate_state(1)[0] >> 1) for child in children]


def describe_observations(space: gymnasium.Space[Any]) -> ObsSpec:
    """Describe an environment's observations.

    Raises:
        EnvError: the space is of a kind that has no arrays.
    """
    try:
        return ObsSpec.from_space(space)
    except ValueError as error:
        raise EnvError(str(error)) from error


def empty_batch(obs_spec: ObsSpec, closed_ids: NDArray[np.int64] | None = None) -> StepBatch:
    """Build the batch without rows: nothing was ready, or environments are gone."""
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
