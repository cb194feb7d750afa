"""Ratings of players by their games against each other: Elo, "The Rating of Chessplayers, Past and Present", 1978.

A difference of 400 points means that the better one is expected to score ten times as much as the other.
"""

from __future__ import annotations

import math

#: Rating of a player without games.
FIRST_RATING = 1000.0
_SCALE = 400.0 / math.log(10.0)


def expected_score(rating: float, opponent: float) -> float:
    """Return the expected score of a player in a game, 0..1: 1 / (1 + 10^((opponent - rating) / 400))."""
    return 1.0 / (1.0 + math.exp((opponent - rating) / _SCALE))


def rate(rating: float, opponent: float, score: float, games: int, step: float) -> tuple[float, float]:
    """Rate two players after games against each other.

    The score is taken to be spread evenly over the games, so their order does not matter, and each game moves both
    ratings by `step` times the difference from what was expected just before it.

    Args:
        rating: rating of the one.
        opponent: opponent of the other.
        score: score of the one in all of these games: a win counts 1, a draw 0.5; 0..games.
        games: how many, >= 0.
        step: points for a whole game unexpected, > 0 (Elo's K); higher follows a change sooner and shakes more.

    Returns:
        The new ratings of both; their sum stays.
    """
    for _ in range(games):
        change = step * (score / games - expected_score(rating, opponent))
        rating, opponent = rating + change, opponent - change
    return rating, opponent
