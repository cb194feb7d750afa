"""Games with PettingZoo's interface, which your class can have without that package.

`ParallelGame`: all players act at the same time. `TurnGame`: one player acts at a time (AEC).
https://pettingzoo.farama.org/api/parallel/ and https://pettingzoo.farama.org/api/aec/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.errors import EnvError
from surreal.base.types import Obs
from surreal.envs.actions import flat_mask, mask_width
from surreal.envs.players.base import Game, View

_OBSERVATION, _MASK = "observation", "action_mask"


class _ZooGame(Game):
    """Base of both interfaces: names of players, and masks in observations."""

    def __init__(self, env: Any, name: str) -> None:
        players = list(getattr(env, "possible_agents", ()))
        if not players:
            raise EnvError(f"{name} does not name its players: it has no possible_agents")
        self._env = env
        self._players = players
        self._numbers = {player: number for number, player in enumerate(players)}
        self.action_spaces = tuple(env.action_space(player) for player in players)
        shown = [env.observation_space(player) for player in players]
        self._has_mask = all(isinstance(each, spaces.Dict) and each.keys() == {_OBSERVATION, _MASK} for each in shown)
        self.observation_spaces = tuple(each[_OBSERVATION] if self._has_mask else each for each in shown)
        self._mask_widths = [mask_width(space) for space in self.action_spaces]
        self.metadata = dict(getattr(env, "metadata", {}))  # type: ignore[misc]
        self.render_mode = getattr(env, "render_mode", None)

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _view(self, number: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> View:
        shown, mask = (obs[_OBSERVATION], obs[_MASK]) if self._has_mask else (obs, (info or {}).get(_MASK))
        has_ended = bool(terminated or truncated)
        return View(
            # A copy, because environments reuse their buffers.
            tree.map_leaves(np.array, shown),
            float(reward),
            bool(terminated),
            bool(truncated),
            self._mask_of(number, mask, has_ended),
        )

    def _mask_of(self, number: int, mask: Any, has_ended: bool) -> NDArray[np.bool_] | None:
        if mask is None or not self._mask_widths[number]:
            return None
        flat = flat_mask(mask, self._mask_widths[number])
        # At the end, games declare no action legal, but a maximum over no actions is undefined.
        return np.ones_like(flat) if has_ended and not flat.any() else flat


class ParallelGame(_ZooGame):
    """A `ParallelEnv`. Players without an observation do not act, so it may be turn-based."""

    def __init__(self, env: Any, name: str) -> None:
        super().__init__(env, name)
        self._alive: set[Any] = set()
        self._rewards: dict[Any, float] = {}
        self._seen: dict[Any, Obs] = {}

    def reset(self, seed: int | None = None) -> dict[int, View]:
        obs, infos = self._env.reset(seed=seed)
        self._alive, self._seen = set(self._env.agents), {}
        self._rewards = dict.fromkeys(self._players, 0.0)
        return self._views(obs, {}, {}, infos)

    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        named = {self._players[number]: action for number, action in actions.items()}
        obs, rewards, terminated, truncated, infos = self._env.step(named)
        for player, reward in rewards.items():
            self._rewards[player] += float(reward)
        self._alive |= set(self._env.agents)  # some join later
        return self._views(obs, terminated, truncated, infos)

    def _views(self, obs: Any, terminated: Any, truncated: Any, infos: Any) -> dict[int, View]:
        views = {}
        for player in self._players:
            end = bool(terminated.get(player)), bool(truncated.get(player))
            if player not in self._alive or not (player in obs or any(end)):
                continue
            seen = obs.get(player, self._seen.get(player))
            if seen is None:  # it never joined
                self._alive.discard(player)
                continue
            number, reward = self._numbers[player], self._rewards[player]
            views[number] = self._view(number, seen, reward, *end, infos.get(player))
            self._rewards[player], self._seen[player] = 0.0, seen
            if any(end):
                self._alive.discard(player)
        self.is_over = not self._env.agents
        return views


class TurnGame(_ZooGame):
    """An `AECEnv`: one player acts at a time."""

    def reset(self, seed: int | None = None) -> dict[int, View]:
        self._env.reset(seed=seed)
        return self._views()

    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        (action,) = actions.values()
        self._env.step(action)
        return self._views()

    def _views(self) -> dict[int, View]:
        """Find the next player, and skip those whose episode has ended."""
        env, views = self._env, {}
        while env.agents:
            number = self._numbers[env.agent_selection]
            views[number] = view = self._view(number, *env.last())
            if not view.has_ended:
                break
            env.step(None)
        self.is_over = not env.agents
        return views
