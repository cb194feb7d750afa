"""`UniformGame`: a game in which all players see and do the same kinds of things, so that one policy can play for each.

Where they differ, it is by as much as can be evened out: vectors of different lengths are filled up with zeros, and
numbers of actions with illegal ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.types import Obs
from surreal.envs.players.base import Game, View

AnySpace = gymnasium.Space[Any]


class UniformGame:
    """A game with one observation space and one action space.

    Args:
        game: what is played.
        name: of the game, for messages.
        player_id: whether players are told which they are: observations become `{"obs": ..., "player": one-hot}`.

    Attributes:
        observation_space: of each player.
        action_space: of each player.

    Raises:
        EnvError: the players' spaces differ in more than their sizes.
    """

    def __init__(self, game: Game, name: str, *, player_id: bool = False) -> None:
        self.game = game
        self.name = name
        self.num_players = game.num_players
        shown = _common_observations(game.observation_spaces, name)
        self.action_space = _common_actions(game.action_spaces, name)
        self._length = shown.shape[0] if _is_filled_up(game.observation_spaces) and shown.shape else None
        self._num_actions = [int(space.n) if isinstance(space, spaces.Discrete) else 0 for space in game.action_spaces]
        self._width = max(self._num_actions)
        self._has_unlike_actions = len(set(self._num_actions)) > 1
        self._names = np.eye(self.num_players, dtype=np.float32) if player_id else None
        self.observation_space = shown
        if player_id:
            one_hot = spaces.Box(0.0, 1.0, (self.num_players,), np.float32)
            self.observation_space = spaces.Dict({"obs": shown, "player": one_hot})

    @property
    def is_over(self) -> bool:
        """Whether all episodes have ended."""
        return self.game.is_over

    def reset(self, seed: int | None = None) -> dict[int, View]:
        """Begin a game, as `Game.reset`."""
        return self._evened(self.game.reset(seed))

    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        """Apply actions, as `Game.step`.

        Raises:
            EnvError: a player does what only others can.
        """
        if self._has_unlike_actions:
            for player, action in actions.items():
                if action >= self._num_actions[player]:
                    raise EnvError(
                        f"{self.name}: player {player} has {self._num_actions[player]} actions, but got {action}; the "
                        "agent must respect action masks"
                    )
        return self._evened(self.game.step(actions))

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _evened(self, views: dict[int, View]) -> dict[int, View]:
        if self._length is None and not self._has_unlike_actions and self._names is None:
            return views
        return {player: self._even(player, view) for player, view in views.items()}

    def _even(self, player: int, view: View) -> View:
        obs: Obs = view.obs
        if self._length is not None:
            obs = np.zeros(self._length, np.float32)
            obs[: len(view.obs)] = view.obs
        if self._names is not None:
            obs = {"obs": obs, "player": self._names[player]}
        return view._replace(obs=obs, action_mask=self._mask(player, view.action_mask))

    def _mask(self, player: int, mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        if not self._has_unlike_actions:
            return mask
        widened = np.zeros(self._width, np.bool_)
        widened[: self._num_actions[player]] = True if mask is None else mask
        return widened


def _common_observations(found: Sequence[AnySpace], name: str) -> AnySpace:
    if all(space == found[0] for space in found):
        return found[0]
    if _is_filled_up(found):
        length = max(space.shape[0] for space in found if space.shape)
        return spaces.Box(-np.inf, np.inf, (length,), np.float32)
    raise EnvError(f"the players of {name} cannot share a policy: player 0 sees {found[0]}, another {_other(found)}")


def _common_actions(found: Sequence[AnySpace], name: str) -> AnySpace:
    if all(space == found[0] for space in found):
        return found[0]
    if all(isinstance(space, spaces.Discrete) and space.start == 0 for space in found):
        return max(found, key=lambda space: int(space.n))  # type: ignore[attr-defined]
    raise EnvError(f"the players of {name} cannot share a policy: player 0 does {found[0]}, another {_other(found)}")


def _is_filled_up(found: Sequence[AnySpace]) -> bool:
    """Whether these are vectors of floats, but not the same ones."""
    vectors = [isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype.kind == "f" for space in found]
    return all(vectors) and any(space != found[0] for space in found)


def _other(found: Sequence[AnySpace]) -> AnySpace:
    return next(space for space in found if space != found[0])
