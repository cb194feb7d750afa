"""Game: the interface of games with several players, who act at the same time or in turn.

    views = game.reset(seed)                     # of the players that act now
    while not game.is_over:
        views = game.step({player: choose(view) for player, view in views.items() if not view.has_ended})

A player gets a view when it acts next or when its episode has ended, so in a turn-based game it sees only the results
of other players' moves. Players are numbered from 0. `UniformGame` makes all players alike; `Opponents` control the
players of a `GamePool` that the agent does not control.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.types import Obs

AnySpace = gymnasium.Space[Any]


class View(NamedTuple):
    """Observation of a player that acts now, or whose episode has ended."""

    obs: Obs  #: not shared with the game
    reward: float = 0.0  #: since the player's last view
    terminated: bool = False  #: its episode ended in a terminal state
    truncated: bool = False  #: its episode was cut
    action_mask: NDArray[np.bool_] | None = None  #: legal actions; None: all

    @property
    def has_ended(self) -> bool:
        return self.terminated or self.truncated


class Game(ABC):
    """Base of all games. A subclass defines `reset` and `step`, and updates `is_over`."""

    observation_spaces: tuple[AnySpace, ...]  #: one space for each player
    action_spaces: tuple[AnySpace, ...]  #: one space for each player
    is_over: bool = True  #: whether all episodes have ended; true before the first `reset`
    render_mode: str | None = None
    metadata: ClassVar[dict[str, Any]] = {}

    @property
    def num_players(self) -> int:
        """Number of players; some may be absent, or leave early."""
        return len(self.action_spaces)

    @abstractmethod
    def reset(self, seed: int | None = None) -> dict[int, View]:
        """Begin a game, with a seed if given, and return the views of the players that act first, at least one."""

    @abstractmethod
    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        """Apply the actions of the players that acted; return views of those that act now or whose episode ended."""

    def render(self) -> Any:
        """Draw the game, as gymnasium's environments do."""
        return None

    def close(self) -> None:
        """Release resources; may be called twice."""


class UniformGame:
    """A game whose players share one observation space and one action space, so that one policy can play for each.

    Shorter vectors are padded with zeros, and smaller sets of actions with illegal actions.

    Args:
        player_id: add the player's number: observations become `{"obs": ..., "player": one-hot}`.

    Raises:
        EnvError: the players' spaces differ in more than their sizes.
    """

    def __init__(self, game: Game, name: str, *, player_id: bool = False) -> None:
        self.game = game
        self.name = name
        self.num_players = game.num_players
        shown = _common_observations(game.observation_spaces, name)
        self.action_space = _common_actions(game.action_spaces, name)
        self._length = shown.shape[0] if _needs_padding(game.observation_spaces) and shown.shape else None
        self._num_actions = [int(space.n) if isinstance(space, spaces.Discrete) else 0 for space in game.action_spaces]
        self._width = max(self._num_actions)
        self._has_unlike_actions = len(set(self._num_actions)) > 1
        self._one_hots = np.eye(self.num_players, dtype=np.float32) if player_id else None
        self.observation_space = shown
        if player_id:
            one_hot = spaces.Box(0.0, 1.0, (self.num_players,), np.float32)
            self.observation_space = spaces.Dict({"obs": shown, "player": one_hot})

    @property
    def is_over(self) -> bool:
        return self.game.is_over

    def reset(self, seed: int | None = None) -> dict[int, View]:
        return self._padded(self.game.reset(seed))

    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        """Apply actions; see `Game.step`. Raises `EnvError` if an action is legal for other players only."""
        if self._has_unlike_actions:
            for player, action in actions.items():
                if action >= self._num_actions[player]:
                    problem = f"{self.name}: player {player} has {self._num_actions[player]} actions, but got {action}"
                    raise EnvError(f"{problem}; the agent must respect action masks")
        return self._padded(self.game.step(actions))

    def close(self) -> None:
        self.game.close()

    def _padded(self, views: dict[int, View]) -> dict[int, View]:
        if self._length is None and not self._has_unlike_actions and self._one_hots is None:
            return views
        return {player: self._pad(player, view) for player, view in views.items()}

    def _pad(self, player: int, view: View) -> View:
        obs: Obs = view.obs
        if self._length is not None:
            obs = np.zeros(self._length, np.float32)
            obs[: len(view.obs)] = view.obs
        if self._one_hots is not None:
            obs = {"obs": obs, "player": self._one_hots[player]}
        return view._replace(obs=obs, action_mask=self._mask(player, view.action_mask))

    def _mask(self, player: int, mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        if not self._has_unlike_actions:
            return mask
        widened = np.zeros(self._width, np.bool_)
        widened[: self._num_actions[player]] = True if mask is None else mask
        return widened


class PlayerRoles(NamedTuple):
    """Roles of the players in one game."""

    is_agent: NDArray[np.bool_]  #: [players] whether the pool's agent controls this player
    is_recorded: NDArray[np.bool_]  #: [players] whether the steps of this player are experience


class Opponents(Protocol):
    """Controls the players of a `GamePool` that its agent does not control; called on the acting thread."""

    def begin(self, game: int) -> PlayerRoles:
        """Choose the roles in the next game of this number; a game before that did not `end` does not count."""

    def end(self, game: int, returns: NDArray[np.float64]) -> None:
        """Record the end of a game: the sum of rewards of each player [players]."""

    def act(
        self, slots: NDArray[np.int64], obs: Obs, is_first: NDArray[np.bool_], action_mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        """Choose actions [n, *action_shape]; the slot of player p in game g is g * players + p.

        `is_first` [n] marks a player's first turn in its game; `action_mask` [n, actions] None: all are legal.
        """

    def maintain(self) -> None:
        """Run periodic work; called in each `recv`."""

    def metrics(self) -> dict[str, float]:
        """Return metrics; any thread may call it."""


class NoOpponents:
    """The agent controls all players, and all steps are experience: one policy that all players share."""

    def __init__(self, num_players: int) -> None:
        everyone = np.ones(num_players, np.bool_)
        self._roles = PlayerRoles(everyone, everyone)

    def begin(self, game: int) -> PlayerRoles:
        return self._roles

    def end(self, game: int, returns: NDArray[np.float64]) -> None: ...

    def act(
        self, slots: NDArray[np.int64], obs: Obs, is_first: NDArray[np.bool_], action_mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        raise RuntimeError("there are no opponents that could act")

    def maintain(self) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}


def _common_observations(found: Sequence[AnySpace], name: str) -> AnySpace:
    if all(space == found[0] for space in found):
        return found[0]
    if _needs_padding(found):
        length = max(space.shape[0] for space in found if space.shape)
        return spaces.Box(-np.inf, np.inf, (length,), np.float32)
    raise EnvError(f"the players of {name} cannot share a policy: player 0 sees {found[0]}, another {_other(found)}")


def _common_actions(found: Sequence[AnySpace], name: str) -> AnySpace:
    if all(space == found[0] for space in found):
        return found[0]
    if all(isinstance(space, spaces.Discrete) and space.start == 0 for space in found):
        return max(found, key=lambda space: int(space.n))  # type: ignore[attr-defined]
    raise EnvError(f"the players of {name} cannot share a policy: player 0 does {found[0]}, another {_other(found)}")


def _needs_padding(found: Sequence[AnySpace]) -> bool:
    """Whether these are vectors of floats with different spaces."""
    vectors = [isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype.kind == "f" for space in found]
    return all(vectors) and any(space != found[0] for space in found)


def _other(found: Sequence[AnySpace]) -> AnySpace:
    return next(space for space in found if space != found[0])
