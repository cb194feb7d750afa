"""`Seats`: what each player of a pool's games was shown last, and its episode so far; the columns of `GamePool`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.envs.players.base import View
from surreal.envs.pools.rows import LastRows


class Seats:
    """One row for each slot.

    Args:
        obs_spec: of the observations.
        count: slots.
        mask_width: discrete actions; 0 where masks make no sense.

    Attributes:
        obs: per leaf [count, *shape], shown last while the episode goes on.
        mask: [count, mask_width] likewise, which actions are legal.
        has_mask: whether any view had a mask.
        reward: [count] since the player was shown something before.
        is_open: [count] whether the player has an episode under way, of which a row was shown.
        is_recorded: [count] whether the game under way is experience of this player.
        was_recorded: [count] whether the one was that ended last.
    """

    def __init__(self, obs_spec: ObsSpec, count: int, mask_width: int) -> None:
        self._spec = obs_spec
        self.obs = [np.zeros((count, *leaf.shape), leaf.dtype) for leaf in obs_spec.leaves]
        self.mask = np.ones((count, mask_width), np.bool_)
        self.has_mask = False
        self.reward = np.zeros(count)
        self.is_open = np.zeros(count, np.bool_)
        self.is_recorded = np.ones(count, np.bool_)
        self.was_recorded = np.ones(count, np.bool_)
        self._final_obs = [np.zeros_like(leaf) for leaf in self.obs]
        self._final_mask = np.ones_like(self.mask)
        self._final_reward = np.zeros(count)
        self._is_terminated, self._is_truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self._returns, self._final_returns = np.zeros(count), np.zeros(count)
        self._lengths, self._final_lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def show(self, slot: int, view: View) -> None:
        """Write down what a player that is to act is shown.

        Raises:
            EnvError: it is not what the space says.
        """
        self._write(self.obs, self.mask, slot, view)
        self.reward[slot] = view.reward
        if self.is_open[slot]:
            self._returns[slot] += view.reward
            self._lengths[slot] += 1

    def begin(self, slots: NDArray[np.int64]) -> None:
        """Begin the episodes of these slots, of which the first row is shown now."""
        self.is_open[slots] = True
        self._returns[slots], self._lengths[slots] = 0.0, 0

    def end(self, slot: int, view: View) -> None:
        """Write down how an episode under way ended; raises as `show`."""
        self._write(self._final_obs, self._final_mask, slot, view)
        self._final_reward[slot] = view.reward
        self._is_terminated[slot], self._is_truncated[slot] = view.terminated, view.truncated
        self._final_returns[slot] = self._returns[slot] + view.reward
        self._final_lengths[slot] = self._lengths[slot] + 1
        self.was_recorded[slot] = self.is_recorded[slot]
        self.is_open[slot] = False

    def forget(self, slots: NDArray[np.int64]) -> None:
        """Let go of the episodes of these slots."""
        self.is_open[slots] = False

    def last_rows(self, slots: NDArray[np.int64]) -> LastRows:
        """The rows of episodes that ended; returns of those that are no experience are nan: they count for nobody."""
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

    def _write(self, columns: list[NDArray[Any]], masks: NDArray[np.bool_], slot: int, view: View) -> None:
        try:
            leaves = self._spec.split(view.obs)
        except ValueError as error:
            raise EnvError(f"a game gave an observation that its space does not describe: {error}") from error
        for column, value, leaf in zip(columns, leaves, self._spec.leaves, strict=True):
            if np.shape(value) != leaf.shape:
                name = f"observation {leaf.name!r}" if leaf.name else "observations"
                raise EnvError(f"a game gives {name} of shape {np.shape(value)}, but its space says {leaf.shape}")
            column[slot] = value
        if masks.shape[1]:
            self.has_mask = self.has_mask or view.action_mask is not None
            masks[slot] = True if view.action_mask is None else view.action_mask
