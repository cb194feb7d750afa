"""The columns a group of environments writes its steps into: `EnvList` does, here or in a worker's shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.envs.pools.rows import LastRows, LiveRows


@dataclass(slots=True)
class Columns:
    """One row for each environment: the outcome of its last action.

    Where an episode ended, `obs` is the first observation of the next one, and `final_obs`, `episode_return` and
    `episode_length` describe the end; elsewhere these three are stale.
    """

    obs: list[NDArray[Any]]  #: per leaf [k, *shape]
    final_obs: list[NDArray[Any]]  #: per leaf [k, *shape]
    reward: NDArray[np.float64]  #: [k]
    terminated: NDArray[np.bool_]  #: [k]
    truncated: NDArray[np.bool_]  #: [k]
    episode_return: NDArray[np.float64]  #: [k] nan if not known
    episode_length: NDArray[np.int64]  #: [k]
    action_mask: NDArray[np.bool_]  #: [k, n] n is 0 where masks make no sense
    final_mask: NDArray[np.bool_]  #: [k, n]

    @classmethod
    def specs(cls, obs_spec: ObsSpec, mask_width: int) -> list[ArraySpec]:
        """List the arrays in a fixed order, for who allocates them."""
        leaves = [ArraySpec(leaf.name, leaf.shape, leaf.dtype) for leaf in obs_spec.leaves]
        rest: list[tuple[str, tuple[int, ...], str]]
        rest = [("reward", (), "f8"), ("terminated", (), "?"), ("truncated", (), "?"), ("episode_return", (), "f8")]
        rest += [("episode_length", (), "i8"), ("action_mask", (mask_width,), "?"), ("final_mask", (mask_width,), "?")]
        return leaves + leaves + [ArraySpec(name, shape, np.dtype(dtype)) for name, shape, dtype in rest]

    @classmethod
    def of(cls, arrays: list[NDArray[Any]]) -> Columns:
        """Name the arrays that `specs` lists."""
        leaves = (len(arrays) - 7) // 2
        return cls(arrays[:leaves], arrays[leaves : 2 * leaves], *arrays[2 * leaves :])

    @classmethod
    def allocate(cls, obs_spec: ObsSpec, num_envs: int, mask_width: int) -> Columns:
        """Make columns in this process's memory."""
        specs = cls.specs(obs_spec, mask_width)
        return cls.of([np.zeros((num_envs, *spec.shape), spec.dtype) for spec in specs])

    def rows(self, start: int, stop: int) -> Columns:
        """View the rows of some consecutive environments."""
        arrays = [*self.obs, *self.final_obs, self.reward, self.terminated, self.truncated, self.episode_return]
        arrays += [self.episode_length, self.action_mask, self.final_mask]
        return Columns.of([array[start:stop] for array in arrays])

    def last_rows(self, ended: NDArray[np.int64], *, has_mask: bool) -> LastRows:
        """Copy the ends of episodes out of the columns."""
        return LastRows(
            ended,
            [final.take(ended, 0) for final in self.final_obs],
            self.final_mask.take(ended, 0) if has_mask else None,
            self.reward.take(ended),
            self.terminated.take(ended),
            self.truncated.take(ended),
            self.episode_return.take(ended),
            self.episode_length.take(ended),
        )

    def live_rows(self, ids: NDArray[np.int64], first: NDArray[np.int64], *, has_mask: bool) -> LiveRows:
        """Copy the rows that want an action out of the columns; `first` are positions in `ids`."""
        return LiveRows(
            ids,
            [leaf.take(ids, 0) for leaf in self.obs],
            self.reward.take(ids),
            first,
            self.action_mask.take(ids, 0) if has_mask else None,
        )
