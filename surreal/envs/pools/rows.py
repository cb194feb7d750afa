"""Rows of a `StepBatch`, and the `RowJoiner` of batches: ends of episodes, then rows that need an action."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ObsSpec
from surreal.base.types import Obs, StepBatch, StepKind

# NumPy takes ten times as long to store a member of an enum as an int.
_FIRST, _MID, _LAST = int(StepKind.FIRST), int(StepKind.MID), int(StepKind.LAST)

NO_IDS: NDArray[np.int64] = np.zeros(0, np.int64)


class LastRows(NamedTuple):
    """The ends of m episodes."""

    env_ids: NDArray[np.int64]  #: [m]
    obs: list[NDArray[Any]]  #: per leaf [m, *shape], the final observations
    action_mask: NDArray[np.bool_] | None  #: [m, n]
    reward: NDArray[Any]  #: [m]
    terminated: NDArray[np.bool_]  #: [m]
    truncated: NDArray[np.bool_]  #: [m]
    episode_return: NDArray[np.float64]  #: [m] nan if not known
    episode_length: NDArray[np.int64]  #: [m]


class LiveRows(NamedTuple):
    """n rows that need an action."""

    env_ids: NDArray[np.int64]  #: [n]
    obs: list[NDArray[Any]]  #: per leaf [n, *shape]
    reward: NDArray[Any]  #: [n]
    first: NDArray[np.int64]  #: positions in these rows that start an episode: their reward does not count
    action_mask: NDArray[np.bool_] | None  #: [n, n_actions]


class RowJoiner:
    """Builds the batches of one pool, each row with the same `explore` and `record`."""

    def __init__(self, obs_spec: ObsSpec, num_envs: int, *, explore: bool, record: bool) -> None:
        self._obs_spec = obs_spec
        # An environment has at most two rows in a batch; slices of these arrays serve batches of every size.
        size = 2 * num_envs
        mid, false = np.full(size, _MID, np.uint8), np.zeros(size, np.bool_)
        explores, records = np.full(size, explore), np.full(size, record)
        self._constants = [(mid[:n], false[:n], explores[:n], records[:n]) for n in range(size + 1)]
        self._ids = np.arange(num_envs)
        self._no_info: dict[str, NDArray[Any]] = {}

    def steady(self, obs: Obs, reward: NDArray[Any], action_mask: NDArray[np.bool_] | None) -> StepBatch:
        """Build the batch of a step in which nothing began or ended, the common case; `obs` is not copied."""
        kind, false, explore, record = self._constants[len(self._ids)]
        info = self._no_info if action_mask is None else {"action_mask": action_mask}
        return StepBatch(
            kind, self._ids, obs, reward.astype(np.float32), false, false, explore, record, 0, info, NO_IDS
        )

    def live(self, live: LiveRows, closed_ids: NDArray[np.int64] = NO_IDS) -> StepBatch:
        mid, false, explore, record = self._constants[len(live.env_ids)]
        kind = mid.copy()
        kind[live.first] = _FIRST
        reward = live.reward.astype(np.float32)
        reward[live.first] = 0.0
        info = self._no_info if live.action_mask is None else {"action_mask": live.action_mask}
        obs = self._obs_spec.unflatten(live.obs)
        return StepBatch(kind, live.env_ids, obs, reward, false, false, explore, record, 0, info, closed_ids)

    def join(self, last: LastRows, live: LiveRows, closed_ids: NDArray[np.int64] = NO_IDS) -> StepBatch:
        """Build a batch of LAST rows and of rows that need an action."""
        num_last = len(last.env_ids)
        if not num_last:
            return self.live(live, closed_ids)
        count = num_last + len(live.env_ids)
        mid, false, explore, record = self._constants[count]
        first = live.first + num_last
        kind = mid.copy()
        kind[:num_last] = _LAST
        kind[first] = _FIRST
        reward = np.concatenate((last.reward, live.reward)).astype(np.float32)
        reward[first] = 0.0
        terminated = false.copy()
        terminated[:num_last] = last.terminated
        truncated = false.copy()
        truncated[:num_last] = last.truncated
        info = _episode_info(count, last.episode_return, last.episode_length)
        if last.action_mask is not None and live.action_mask is not None:
            info["action_mask"] = np.concatenate((last.action_mask, live.action_mask))
        env_ids = np.concatenate((last.env_ids, live.env_ids))
        obs = self._obs_spec.unflatten([np.concatenate(pair) for pair in zip(last.obs, live.obs, strict=True)])
        return StepBatch(kind, env_ids, obs, reward, terminated, truncated, explore, record, num_last, info, closed_ids)

    def reorder(
        self,
        ended: NDArray[np.int64],
        running: NDArray[np.int64],
        whole: LiveRows,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        episode_return: NDArray[np.float64],
        episode_length: NDArray[np.int64],
    ) -> StepBatch:
        """Build a batch with one row for each environment; those that ended come first, and need no action.

        `terminated` and `truncated` are [num_envs]; returns and lengths [m] are those of the ended ones.
        """
        num_last = len(ended)
        order = np.concatenate((ended, running))
        mid, _, explore, record = self._constants[len(order)]
        kind, reward = mid.copy(), whole.reward.astype(np.float32)
        if len(whole.first):
            kind[whole.first], reward[whole.first] = _FIRST, 0.0
            kind = kind.take(order)
        kind[:num_last] = _LAST
        info = _episode_info(len(order), episode_return, episode_length)
        if whole.action_mask is not None:
            info["action_mask"] = whole.action_mask.take(order, 0)
        obs = self._obs_spec.unflatten([leaf.take(order, 0) for leaf in whole.obs])
        outcome = reward.take(order), terminated.take(order), truncated.take(order)
        return StepBatch(kind, order, obs, *outcome, explore, record, num_last, info, NO_IDS)


def _episode_info(count: int, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    num_last = len(returns)
    episode_return = np.empty(count)
    episode_return[:num_last] = returns
    episode_return[num_last:] = np.nan
    episode_length = np.zeros(count, np.int64)
    episode_length[:num_last] = lengths
    return {"episode_return": episode_return, "episode_length": episode_length}
