"""Who plays beside the agent in a `GamePool`: the interface of self-play, which `surreal.run.self_play` fills."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import Obs


class Seating(NamedTuple):
    """Who plays for whom in one game."""

    is_agent: NDArray[np.bool_]  #: [players] whether the agent of the pool plays for this player
    is_recorded: NDArray[np.bool_]  #: [players] whether what this player does is experience


class Opponents(Protocol):
    """Plays for the players that the agent does not play for. Called by the pool, on the acting thread."""

    def begin(self, game: int) -> Seating:
        """Decide who plays in the next game of this number; an earlier one that did not `end` does not count."""

    def end(self, game: int, returns: NDArray[np.float64]) -> None:
        """Take note of how a game ended: the sum of rewards of each player [players]."""

    def act(
        self,
        slots: NDArray[np.int64],
        obs: Obs,
        is_first: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None,
    ) -> NDArray[Any]:
        """Choose actions [n, *action_shape] for players [n]; the slot of player p in game g is g * players + p.

        Args:
            slots: [n] of the players.
            obs: [n, *obs_shape] per leaf.
            is_first: [n] rows in which a player acts for the first time in its game.
            action_mask: [n, actions] legal ones; None: all.
        """

    def maintain(self) -> None:
        """Called in each `recv`; does what is due now and then."""

    def metrics(self) -> dict[str, float]:
        """Numbers for the run's telemetry; from any thread."""


class NoOpponents:
    """The agent plays for everyone, and all of it is experience: one policy that all players share.

    Args:
        num_players: of a game.
    """

    def __init__(self, num_players: int) -> None:
        everyone = np.ones(num_players, np.bool_)
        self._seating = Seating(everyone, everyone)

    def begin(self, game: int) -> Seating:
        """Everyone is the agent."""
        return self._seating

    def end(self, game: int, returns: NDArray[np.float64]) -> None:
        """Nobody keeps score."""

    def act(
        self,
        slots: NDArray[np.int64],
        obs: Obs,
        is_first: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None,
    ) -> NDArray[Any]:
        """Never called."""
        raise RuntimeError("there are no opponents that could act")

    def maintain(self) -> None:
        """Nothing is ever due."""

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}
