"""Tic-tac-toe by its rules, and its careful player."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.envs.players.base import UniformGame
from surreal.envs.players.views import OnePlayer
from surreal.plugins.games.tictactoe import LINES, TicTacToe, careful, perfect


def play(squares: list[int]) -> dict[int, float]:
    """Set marks in turn; returns the rewards of the last step."""
    game = TicTacToe()
    views = game.reset()
    for number, square in enumerate(squares):
        assert list(views) == [number % 2] and not game.is_over
        views = game.step({number % 2: square})
    assert game.is_over and all(view.terminated for view in views.values())
    return {player: view.reward for player, view in views.items()}


def test_three_in_a_line_win_and_nine_without_are_a_draw() -> None:
    assert len(LINES) == 8
    assert play([0, 3, 1, 4, 2]) == {0: 1.0, 1: -1.0}
    assert play([0, 2, 1, 4, 8, 6]) == {0: -1.0, 1: 1.0}
    assert play([0, 1, 2, 4, 3, 5, 7, 6, 8]) == {0: 0.0, 1: 0.0}


def test_each_player_sees_its_own_marks_first() -> None:
    game = TicTacToe(render_mode="ansi")
    game.reset()
    view = game.step({0: 4})[1]
    assert not view.obs[0].any() and view.obs[1, 1, 1] == 1
    assert view.action_mask is not None and view.action_mask.sum() == 8
    assert game.render() == "...\n.X.\n..."


def test_a_taken_square_is_refused() -> None:
    game = TicTacToe()
    game.reset()
    game.step({0: 4})
    with pytest.raises(ValueError, match="player 1 wants square 4, which is taken"):
        game.step({1: 4})


def test_the_careful_player_wins_if_it_can_and_defends_if_it_must() -> None:
    rng, own, other = np.random.default_rng(0), [0, 1], [3, 4]
    obs = np.zeros((2, 9), np.int8)
    obs[0, own], obs[1, other] = 1, 1
    assert careful(obs.reshape(2, 3, 3), None, rng) == 2
    assert careful(obs[::-1].reshape(2, 3, 3), None, rng) == 5
    obs[0, own] = [1, 0]
    assert careful(obs.reshape(2, 3, 3), None, rng) == 5


def test_the_perfect_player_loses_to_nobody_and_wins_where_it_can() -> None:
    env, rng, results = OnePlayer(UniformGame(TicTacToe(), "tictactoe"), careful), np.random.default_rng(0), []
    for seed in range(60):
        obs, info = env.reset(seed=seed)
        done = False
        while not done:
            obs, reward, done, _, info = env.step(perfect(obs, info["action_mask"], rng))
        results.append(reward)
    assert min(results) == 0.0 and 15 <= sum(results) <= 45
