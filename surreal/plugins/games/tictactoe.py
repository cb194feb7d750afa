"""Tic-tac-toe, a small turn-based game, and reference players; `game:tictactoe`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.envs.players.base import Game, View

_ROWS = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
#: The eight lines of three squares.
LINES = np.array([*_ROWS, *zip(*_ROWS, strict=True), [0, 4, 8], [2, 4, 6]])


class TicTacToe(Game):
    """Two players set marks in turn; three in a line win 1, which the other loses.

    An observation is [2, 3, 3] int8: the player's own marks, and the opponent's. Actions are squares, row by row.

    Args:
        render_mode: "ansi" gives the board as text; None draws nothing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode is {render_mode!r}; tic-tac-toe draws as 'ansi' text only")
        self.render_mode = render_mode
        self.observation_spaces = (spaces.Box(0, 1, (2, 3, 3), np.int8),) * 2
        self.action_spaces = (spaces.Discrete(9),) * 2
        self.marks: NDArray[np.bool_] = np.zeros((2, 9), np.bool_)  #: [player, square]

    def reset(self, seed: int | None = None) -> dict[int, View]:
        self.marks = np.zeros((2, 9), np.bool_)
        self.is_over = False
        return {0: self._view(0)}

    def step(self, actions: Mapping[int, Any]) -> dict[int, View]:
        """Set a mark; raises `ValueError` if the square is taken, or does not exist."""
        ((player, square),) = actions.items()
        if not 0 <= square < 9 or self.marks[:, square].any():
            raise ValueError(f"player {player} wants square {square}, which is taken or does not exist")
        self.marks[player, square] = True
        has_won = has_line(self.marks[player])
        self.is_over = has_won or bool(self.marks.any(axis=0).all())
        if not self.is_over:
            return {1 - player: self._view(1 - player)}
        prize = float(has_won)
        return {player: self._view(player, prize), 1 - player: self._view(1 - player, -prize)}

    def render(self) -> str:
        signs = np.where(self.marks[0], "X", np.where(self.marks[1], "O", "."))
        return "\n".join("".join(signs[row]) for row in _ROWS)

    def _view(self, player: int, reward: float = 0.0) -> View:
        obs = np.stack((self.marks[player], self.marks[1 - player])).reshape(2, 3, 3).astype(np.int8)
        legal: NDArray[np.bool_] = np.ones(9, np.bool_) if self.is_over else ~(self.marks[0] | self.marks[1])
        return View(obs, reward, terminated=self.is_over, action_mask=legal)


def has_line(marks: NDArray[np.bool_]) -> bool:
    """Whether marks [9] have three in a line."""
    return bool(marks[LINES].all(axis=1).any())


def careful(obs: NDArray[Any], _: NDArray[np.bool_] | None, rng: np.random.Generator) -> int:
    """Win if possible, else block the opponent, else move at random; a reference player."""
    own, other = obs.reshape(2, 9).astype(np.bool_)
    free = np.flatnonzero(~(own | other))
    for marks in (own, other):
        for square in free:
            tried = marks.copy()
            tried[square] = True
            if has_line(tried):
                return int(square)
    return int(rng.choice(free))


def perfect(obs: NDArray[Any], _: NDArray[np.bool_] | None, rng: np.random.Generator) -> int:
    """Never lose, by full search, with random choice among equal moves; a reference player."""
    own, other = (int(marks @ _BITS) for marks in obs.reshape(2, 9))
    squares = [square for square in range(9) if not (own | other) >> square & 1]
    values = [-_value(other, own | 1 << square) for square in squares]
    return int(rng.choice([square for square, value in zip(squares, values, strict=True) if value == max(values)]))


_BITS = 1 << np.arange(9)
_WON = [sum(1 << int(square) for square in line) for line in LINES]


@cache
def _value(own: int, other: int) -> int:
    """Value of a position for the player that moves next; marks are bits."""
    if any(line & other == line for line in _WON):
        return -1
    squares = [square for square in range(9) if not (own | other) >> square & 1]
    return max((-_value(other, own | 1 << square) for square in squares), default=0)
