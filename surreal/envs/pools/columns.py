"""Columns that pools write steps into: `Columns` for environments, `PlayerColumns` for the players of games.

`EnvList` writes into `Columns`, in this process or in the shared memory of a worker; `GamePool` into `PlayerColumns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import EXECUTED_ACTION, IS_INTERVENTION, StepBatch, StepKind
from surreal.envs.players.base import View
from surreal.envs.pools.rows import LastRows, LiveRows

_FIRST = int(StepKind.FIRST)


@dataclass(slots=True)
class Columns:
    """One row for each environment: the outcome of its last action.

    If an episode ended, `obs` is the first observation of the next one, and `final_obs`, `episode_return` and
    `episode_length` describe the end; otherwise these three are stale.
    """

    obs: list[NDArray[Any]]  #: per leaf [k, *shape]
    final_obs: list[NDArray[Any]]  #: per leaf [k, *shape]
    reward: NDArray[np.float64]  #: [k]
    terminated: NDArray[np.bool_]  #: [k]
    truncated: NDArray[np.bool_]  #: [k]
    episode_return: NDArray[np.float64]  #: [k] nan if not known
    episode_length: NDArray[np.int64]  #: [k]
    action_mask: NDArray[np.bool_]  #: [k, n]; n is 0 without masks
    final_mask: NDArray[np.bool_]  #: [k, n]
    is_intervention: NDArray[np.bool_]  #: [k] whether something else replaced the action
    executed_action: NDArray[Any]  #: [k, *action_shape] what replaced it

    @classmethod
    def specs(cls, obs_spec: ObsSpec, mask_width: int, action: ArraySpec) -> list[ArraySpec]:
        """List the arrays in a fixed order, for allocation."""
        leaves = [ArraySpec(leaf.name, leaf.shape, leaf.dtype) for leaf in obs_spec.leaves]
        rest: list[tuple[str, tuple[int, ...], str]]
        rest = [("reward", (), "f8"), ("terminated", (), "?"), ("truncated", (), "?"), ("episode_return", (), "f8")]
        rest += [("episode_length", (), "i8"), ("action_mask", (mask_width,), "?"), ("final_mask", (mask_width,), "?")]
        rest += [(IS_INTERVENTION, (), "?")]
        return leaves + leaves + [ArraySpec(name, shape, np.dtype(dtype)) for name, shape, dtype in rest] + [action]

    @classmethod
    def of(cls, arrays: list[NDArray[Any]]) -> Columns:
        """Build columns from arrays in the order of `specs`."""
        leaves = (len(arrays) - 9) // 2
        return cls(arrays[:leaves], arrays[leaves : 2 * leaves], *arrays[2 * leaves :])

    @classmethod
    def allocate(cls, obs_spec: ObsSpec, num_envs: int, mask_width: int, action: ArraySpec) -> Columns:
        specs = cls.specs(obs_spec, mask_width, action)
        return cls.of([np.zeros((num_envs, *spec.shape), spec.dtype) for spec in specs])

    def rows(self, start: int, stop: int) -> Columns:
        arrays = [*self.obs, *self.final_obs, self.reward, self.terminated, self.truncated, self.episode_return]
        arrays += [self.episode_length, self.action_mask, self.final_mask, self.is_intervention, self.executed_action]
        return Columns.of([array[start:stop] for array in arrays])

    def last_rows(self, ended: NDArray[np.int64], *, has_mask: bool) -> LastRows:
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
        """Copy the rows that need an action; `first` are positions in `ids`."""
        return LiveRows(
            ids,
            [leaf.take(ids, 0) for leaf in self.obs],
            self.reward.take(ids),
            first,
            self.action_mask.take(ids, 0) if has_mask else None,
        )

    def with_interventions(self, batch: StepBatch) -> StepBatch:
        """Add the actions that replaced the agent's to a batch of these environments, if there are any."""
        is_intervention = self.is_intervention[batch.env_ids] & (batch.kind != _FIRST)
        if not is_intervention.any():
            return batch
        executed = self.executed_action[batch.env_ids]
        return batch._replace(info={**batch.info, IS_INTERVENTION: is_intervention, EXECUTED_ACTION: executed})


class PlayerColumns:
    """One row for each player slot of a `GamePool`: its last view, and its episode so far."""

    def __init__(self, obs_spec: ObsSpec, count: int, mask_width: int) -> None:
        self._spec = obs_spec
        #: per leaf [count, *shape], of the last view
        self.obs = [np.zeros((count, *leaf.shape), leaf.dtype) for leaf in obs_spec.leaves]
        self.mask = np.ones((count, mask_width), np.bool_)  #: [count, mask_width], legal actions of the last view
        self.has_mask = False  #: whether any view had a mask
        self.reward = np.zeros(count)  #: [count] since the view before
        #: [count] whether the player has an episode in progress, of which a row was shown
        self.is_open = np.zeros(count, np.bool_)
        #: [count] whether the game in progress is experience of this player
        self.is_recorded = np.ones(count, np.bool_)
        self.was_recorded = np.ones(count, np.bool_)  #: [count] the same of the episode that ended last
        self._final_obs = [np.zeros_like(leaf) for leaf in self.obs]
        self._final_mask = np.ones_like(self.mask)
        self._final_reward = np.zeros(count)
        self._is_terminated, self._is_truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self._returns, self._final_returns = np.zeros(count), np.zeros(count)
        self._lengths, self._final_lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def show(self, slot: int, view: View) -> None:
        self._write(self.obs, self.mask, slot, view)
        self.reward[slot] = view.reward
        if self.is_open[slot]:
            self._returns[slot] += view.reward
            self._lengths[slot] += 1

    def begin(self, slots: NDArray[np.int64]) -> None:
        """Begin the episodes of these slots, whose first row is shown now."""
        self.is_open[slots] = True
        self._returns[slots], self._lengths[slots] = 0.0, 0

    def end(self, slot: int, view: View) -> None:
        """Write the end of an episode in progress; raises as `show`."""
        self._write(self._final_obs, self._final_mask, slot, view)
        self._final_reward[slot] = view.reward
        self._is_terminated[slot], self._is_truncated[slot] = view.terminated, view.truncated
        self._final_returns[slot] = self._returns[slot] + view.reward
        self._final_lengths[slot] = self._lengths[slot] + 1
        self.was_recorded[slot] = self.is_recorded[slot]
        self.is_open[slot] = False

    def last_rows(self, slots: NDArray[np.int64]) -> LastRows:
        """Copy the ends of episodes; the return of an episode that is not experience is nan."""
        return LastRows(
            slots,
            [leaf.take(slots, 0) for leaf in self._final_obs],
            self._final_mask.take(slots, 0) if self.has_mask else None,
            self._final_reward[slots],
            self._is_terminated[slots],
            self._is_truncated[slots],
            np.where(self.was_recorded[slots], self._final_returns[slots], np.nan),
            self._final_lengths[slots],
        )

    def live_rows(self, slots: NDArray[np.int64]) -> LiveRows:
        """Copy the rows of players that need an action; begins episodes whose first row this is."""
        is_first = ~self.is_open[slots]
        self.begin(slots[is_first])
        return LiveRows(
            slots,
            [leaf.take(slots, 0) for leaf in self.obs],
            self.reward[slots],
            np.flatnonzero(is_first),
            self.mask.take(slots, 0) if self.has_mask else None,
        )

    def _write(self, columns: list[NDArray[Any]], masks: NDArray[np.bool_], slot: int, view: View) -> None:
        try:
            leaves = self._spec.split(view.obs)
        except ValueError as error:
            raise EnvError(f"a game gave an observation that its space does not describe: {error}") from error
        for column, value, leaf in zip(columns, leaves, self._spec.leaves, strict=True):
            if np.shape(value) != leaf.shape:
                got = np.shape(value)
                raise EnvError(f"a game gives {describe_leaf(leaf)} of shape {got}, but its space says {leaf.shape}")
            column[slot] = value
        if masks.shape[1]:
            self.has_mask = self.has_mask or view.action_mask is not None
            masks[slot] = True if view.action_mask is None else view.action_mask


def describe_leaf(leaf: ArraySpec) -> str:
    """Name a leaf of observations in messages."""
    return f"observation {leaf.name!r}" if leaf.name else "observations"


def leaf_paths(structure: Any) -> list[tuple[Any, ...]]:
    """List the keys that lead to each leaf of a nested observation."""
    if structure is None:
        return [()]
    children = structure["dict"].items() if "dict" in structure else enumerate(structure["tuple"])
    return [(key, *path) for key, child in children for path in leaf_paths(child)]


def check_kinds(obs: Any, spec: ObsSpec, name: str) -> None:
    """Check the nesting and dtypes of an observation, which writing would cast silently."""
    found: list[Any] = [obs]
    if spec.structure is not None:
        try:
            spec.flatten(obs)
            found = [reduce(getitem, path, obs) for path in leaf_paths(spec.structure)]
        except (ValueError, TypeError) as error:
            raise EnvError(f"{name}: {error}") from error
    for value, leaf in zip(found, spec.leaves, strict=True):
        if (got := np.asarray(value).dtype).kind in "fcUOS" and leaf.dtype.kind in "biu":
            raise EnvError(f"{name} gives {describe_leaf(leaf)} as {got}, but its space says {leaf.dtype}")
