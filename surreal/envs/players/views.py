"""Games as gymnasium environments with one actor, for evaluation, `surreal play` and programs.

`EveryPlayer`: one policy plays for all players. `OnePlayer`: it plays for one player against a fixed reference.
Training uses `surreal.envs.pools.game_pool`, in which each player is a slot.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.types import Obs
from surreal.envs.players.base import UniformGame, View

#: Chooses an action from an observation, the legal actions (None: all), and random numbers.
Player = Callable[[Obs, NDArray[np.bool_] | None, np.random.Generator], Any]
_Step = tuple[Obs, float, bool, bool, dict[str, Any]]


class _GameView(gymnasium.Env[Any, Any]):
    """Base of both views."""

    def __init__(self, game: UniformGame, frames_per_step: int = 1) -> None:
        self._game = game
        self.observation_space, self.action_space = game.observation_space, game.action_space
        self.render_mode = game.game.render_mode
        self.metadata = dict(game.game.metadata)
        if "render_fps" in self.metadata:
            self.metadata["render_fps"] *= frames_per_step

    def render(self) -> Any:
        return self._game.game.render()

    def close(self) -> None:
        self._game.close()

    def __str__(self) -> str:
        return self._game.name


class EveryPlayer(_GameView):
    """One policy plays for all players: each step acts for one of the players that act now.

    `info["player_number"]` is the number of that player. A step's reward is the sum of all players' rewards divided by
    their number, so the return of an episode is the mean over the players, and its length counts the actions of all.
    """

    def __init__(self, game: UniformGame) -> None:
        super().__init__(game, game.num_players)
        self._views: dict[int, View] = {}
        self._actions: dict[int, Any] = {}
        self._ends: list[View] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._views, self._actions, self._ends = self._game.reset(seed), {}, []
        player = next(iter(self._views))
        return self._views[player].obs, _info(player, self._views[player])

    def step(self, action: Any) -> _Step:
        player = next(player for player in self._views if player not in self._actions)
        self._actions[player] = action
        reward = 0.0
        if len(self._actions) == len(self._views):
            found = self._game.step(self._actions)
            reward = sum(view.reward for view in found.values()) / self._game.num_players
            self._ends += [view for view in found.values() if view.has_ended]
            self._views, self._actions = {p: view for p, view in found.items() if not view.has_ended}, {}
        for player, view in self._views.items():
            if player not in self._actions:
                return view.obs, reward, False, False, _info(player, view)
        if not self._ends:
            raise EnvError(f"{self._game.name} continues, but no player can act")
        last = self._ends[-1]
        is_terminal = all(view.terminated for view in self._ends)
        return last.obs, reward, is_terminal, not is_terminal, {}


class OnePlayer(_GameView):
    """The policy plays for one player, drawn for each episode, and a reference for all others."""

    def __init__(self, game: UniformGame, reference: Player) -> None:
        super().__init__(game)
        self._reference = reference
        self._player = 0
        self._others: dict[int, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        while True:
            self._player = int(self.np_random.integers(self._game.num_players))
            view = self._play_on(self._game.reset(seed))
            if not view.has_ended:
                return view.obs, _info(self._player, view)
            seed = None  # it was over before the policy could act

    def step(self, action: Any) -> _Step:
        view = self._play_on(self._game.step({**self._others, self._player: action}))
        return view.obs, view.reward, view.terminated, view.truncated, _info(self._player, view)

    def _play_on(self, views: dict[int, View]) -> View:
        """Run the other players until it is the policy's turn or its episode has ended."""
        while True:
            self._others = {
                player: self._reference(view.obs, view.action_mask, self.np_random)
                for player, view in views.items()
                if player != self._player and not view.has_ended
            }
            if self._player in views:
                return views[self._player]
            if not self._others:
                raise EnvError(f"{self._game.name} continues, but no player can act")
            views = self._game.step(self._others)


def find_player(name: str, action_space: gymnasium.Space[Any]) -> Player:
    """Find a player: `random`, or the import path of a `Player`."""
    if name == "random":
        return _random_player(action_space)
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute) if module else None
    except (ImportError, AttributeError) as error:
        raise EnvError(f"player {name} cannot be imported: {error}") from error
    if not callable(found):
        raise EnvError(f"player {name!r} is not a function; use `random`, or an import path: my_module.my_player")
    player: Player = found
    return player


def _random_player(space: gymnasium.Space[Any]) -> Player:
    def act(_: Obs, legal: NDArray[np.bool_] | None, rng: np.random.Generator) -> Any:
        if legal is not None and isinstance(space, gymnasium.spaces.Discrete):
            return rng.choice(np.flatnonzero(legal)) + space.start
        space.seed(int(rng.integers(2**31)))
        return space.sample()

    return act


def _info(player: int, view: View) -> dict[str, Any]:
    return {"player_number": player, **({} if view.action_mask is None else {"action_mask": view.action_mask})}
