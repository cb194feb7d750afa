"""Deterministic little games with PettingZoo's parallel interface, without that package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)


class Chase:
    """All act at once. Player p lives for `lives[p]` steps and gets p + 1 in each of them.

    An observation is (player, steps so far, games so far).
    """

    def __init__(self, lives: Sequence[int] = (2, 3), fault_in: int = 0, fault: Any = None) -> None:
        self.possible_agents = [f"player_{number}" for number in range(len(lives))]
        self.agents: list[str] = []
        self._lives = lives
        self._games = self._steps = 0
        self._fault_in, self._fault = fault_in, fault

    def observation_space(self, player: str) -> spaces.Box:
        return BOX

    def action_space(self, player: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._steps = list(self.possible_agents), 0
        self._games += 1
        return {player: self._obs(player) for player in self.agents}, {player: {} for player in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        assert list(actions) == self.agents
        self._steps += 1
        if self._fault_in == self._games and isinstance(self._fault, Exception):
            raise self._fault
        acted = self.agents
        rewards = {player: float(self.possible_agents.index(player) + 1) for player in acted}
        if self._fault_in == self._games:
            rewards[acted[0]] = self._fault
        ends = {player: self._steps == self._lives[self.possible_agents.index(player)] for player in acted}
        self.agents = [player for player in acted if not ends[player]]
        return {p: self._obs(p) for p in acted}, rewards, ends, dict.fromkeys(acted, False), {p: {} for p in acted}

    def close(self) -> None:
        pass

    def _obs(self, player: str) -> Any:
        return np.array([self.possible_agents.index(player), self._steps, self._games], np.float32)


class Turns:
    """Two players act in turn: who is not to act is left out. Step i gives `rewards[i]` to both, the last ends it.

    An observation is (player, steps so far, games so far).
    """

    possible_agents = ("a", "b")

    def __init__(self, rewards: Sequence[Sequence[float]] = ((0, 0), (0, 0), (1, -1))) -> None:
        self.agents: list[str] = []
        self._rewards = rewards
        self._games = self._steps = 0

    def observation_space(self, player: str) -> spaces.Box:
        return BOX

    def action_space(self, player: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._steps = ["a", "b"], 0
        self._games += 1
        return {"a": self._obs("a")}, {}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        assert list(actions) == ["ab"[self._steps % 2]]
        rewards = dict(zip("ab", self._rewards[self._steps], strict=True))
        self._steps += 1
        is_over = self._steps == len(self._rewards)
        shown = "ab" if is_over else "ab"[self._steps % 2]
        self.agents = [] if is_over else ["a", "b"]
        ends = dict.fromkeys("ab", is_over)
        return {player: self._obs(player) for player in shown}, rewards, ends, dict.fromkeys("ab", False), {}

    def close(self) -> None:
        pass

    def _obs(self, player: str) -> Any:
        return np.array(["ab".index(player), self._steps, self._games], np.float32)


class Unlike(Chase):
    """Players with vectors and numbers of actions of different sizes."""

    def observation_space(self, player: str) -> spaces.Box:
        return spaces.Box(-1, 1, (2 if player == "player_0" else 4,), np.float32)

    def action_space(self, player: str) -> spaces.Discrete:
        return spaces.Discrete(2 if player == "player_0" else 3)

    def _obs(self, player: str) -> Any:
        return np.ones(self.observation_space(player).shape, np.float32)


class Apart(Chase):
    """Players that see different kinds of things."""

    def observation_space(self, player: str) -> Any:
        return spaces.Discrete(2) if player == "player_0" else BOX
