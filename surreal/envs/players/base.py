"""`Game`: what several players play, at the same time or in turn.

    views = game.reset(seed)                     # of the players that are to act
    while not game.is_over:
        views = game.step({player: choose(view) for player, view in views.items() if not view.has_ended})

A player is shown something when it is to act, or when its episode has ended: so a player of a turn-based game sees
nothing of its opponent's turn but what came of it. Driven by `surreal.envs.pools.game_pool` and by the views of one
player in `surreal.envs.players.views`. Players are numbered from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.types import Obs


class View(NamedTuple):
    """What a player is shown: it is to act now, or its episode has ended."""

    obs: Obs  #: of its own memory
    reward: float = 0.0  #: since the player was shown something last, whoever acted meanwhile
    terminated: bool = False  #: its episode ended in a terminal state
    truncated: bool = False  #: its episode was cut
    action_mask: NDArray[np.bool_] | None = None  #: which actions are legal; None: all

    @property
    def has_ended(self) -> bool:
        """Whether the player is not to act any more."""
        return self.terminated or self.truncated


class Game(ABC):
    """Base of all games. A subclass gives `reset` and `step`, and keeps `is_over`.

    Attributes:
        observation_spaces: of each player.
        action_spaces: of each player.
        is_over: whether all episodes have ended; true before the first `reset`.
        render_mode: as gymnasium has it.
        metadata: likewise.
    """

    observation_spaces: tuple[gymnasium.Space[Any], ...]
    action_spaces: tuple[gymnasium.Space[Any], ...]
    is_over: bool = True
    render_mode: str | None = None
    metadata: ClassVar[dict[str, Any]] = {}

    @property
    def num_players(self) -> int:
        """Places in the game; some may stay empty, or be empty from some time on."""
        return len(self.action_spaces)

    @abstractmethod
    def reset(self, seed: int | None = None) -> dict[int, View]:
        """Begin a game.

        Args:
            seed: of everything random from here on; None goes on.

        Returns:
            Views of the players that are to act first, one at least.
        """

    @abstractmethod
    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        """Apply the actions of all players that were to act.

        Returns:
            Views of the players that are to act now, and of those whose episode ended.
        """

    def render(self) -> Any:
        """Draw it, as gymnasium's environments do."""
        return None

    def close(self) -> None:
        """Release what it holds; may be called twice."""
