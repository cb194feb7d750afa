"""Ratings against naive computation; which versions stay, and how opponents are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError
from surreal.run.self_play.league import FIRST_RATING, League, PastVersion, expected_score, rate


@given(st.floats(0, 3000), st.floats(0, 3000))
def test_expected_scores_are_elos(rating: float, opponent: float) -> None:
    assert expected_score(rating, opponent) == pytest.approx(1 / (1 + 10 ** ((opponent - rating) / 400)))
    assert expected_score(rating, opponent) + expected_score(opponent, rating) == pytest.approx(1)


def test_a_win_moves_both_ratings_as_in_the_book() -> None:
    # K 32, 400 points below: a win is worth 32 (1 - 1/11), a draw 32 (1/2 - 1/11).
    assert rate(1000, 1400, 1.0, 1, 32) == pytest.approx((1000 + 32 * 10 / 11, 1400 - 32 * 10 / 11))
    assert rate(1000, 1400, 0.5, 1, 32) == pytest.approx((1000 + 32 * 9 / 22, 1400 - 32 * 9 / 22))
    assert rate(1000, 1400, 0.0, 0, 32) == (1000, 1400)


def test_many_games_settle_where_the_score_is_what_is_expected() -> None:
    rating, opponent = rate(1000, 1000, 750, 1000, 16)
    assert expected_score(rating, opponent) == pytest.approx(0.75)
    assert rating + opponent == pytest.approx(2000)


def league_of(*versions: PastVersion, size: int = 10, rating: float = FIRST_RATING) -> League:
    league = League(size=size)
    league.versions, league.rating = list(versions), rating
    return league


def test_a_new_version_has_the_rating_of_the_learner() -> None:
    league = league_of(PastVersion(1))
    assert league.count(1, score=2.0, games=2)
    league.add(7, env_steps=100, updates=5)
    assert league.newest == PastVersion(7, 100, 5, rating=league.rating)
    assert league.rating > FIRST_RATING > league.versions[0].rating
    assert not league.count(99, score=1.0, games=1)
    assert league.games == 2


def test_the_league_is_bounded_and_spread_evenly_with_the_oldest_and_the_newest() -> None:
    league, gone = League(size=5), []
    for number in range(1, 41):
        gone += league.add(number, env_steps=1000 * number, updates=number)
        assert league.newest is not None and league.newest.version == number
        assert len(league.versions) <= 5
    kept = [each.version for each in league.versions]
    assert kept[0] == 1 and kept[-1] == 40
    assert sorted(gone + kept) == list(range(1, 41))
    gaps = np.diff(kept)
    assert gaps.max() <= 4 * gaps.min()


def drawn_shares(league: League, sampling: Any, **options: Any) -> Any:
    weights, rng = league.weights(sampling, **options), np.random.default_rng(0)
    counts = np.bincount(rng.choice(len(weights), size=20_000, p=weights), minlength=len(weights))
    return counts / counts.sum()


def test_pfsp_draws_those_who_still_win() -> None:
    league = league_of(PastVersion(1, score=0.9), PastVersion(2, score=0.5), PastVersion(3, score=0.5))
    # (1 - 0.9)^2 : (1 - 0.5)^2 : (1 - 0.5)^2 = 1 : 25 : 25; one standard error of 20,000 draws is below 0.004.
    np.testing.assert_allclose(drawn_shares(league, "pfsp"), np.array([1, 25, 25]) / 51, atol=0.015)
    np.testing.assert_allclose(drawn_shares(league, "pfsp", exponent=0.0), np.full(3, 1 / 3), atol=0.015)


def test_rating_draws_those_of_the_same_strength() -> None:
    league = league_of(PastVersion(1, rating=600), PastVersion(2, rating=1000), rating=1000)
    # e = 10/11 against the first: 4 e (1 - e) = 40/121, and 1 against the second.
    share = (40 / 121) / (1 + 40 / 121)
    np.testing.assert_allclose(drawn_shares(league, "rating"), [share, 1 - share], atol=0.015)


def test_nobody_is_out_of_the_question() -> None:
    league = league_of(PastVersion(1, score=1.0), PastVersion(2, score=0.0))
    assert 0 < league.weights("pfsp")[0] < 0.01
    np.testing.assert_allclose(league.weights("uniform"), [0.5, 0.5])


def test_the_score_of_a_version_forgets_the_far_past() -> None:
    league = league_of(PastVersion(1))
    league.count(1, score=0.0, games=500)
    assert league.versions[0].score < 0.01
    league.count(1, score=200.0, games=200)
    assert league.versions[0].score > 0.95


def test_a_league_survives_json_and_anything_else_is_refused() -> None:
    league = League(size=3)
    for number in (1, 5, 9):
        league.add(number, env_steps=number, updates=number)
        league.count(number, score=1.5, games=2)
    other = League(size=3)
    other.load_json(league.to_json())
    assert other.versions == league.versions and other.rating == league.rating and other.games == 6
    good = league.to_json()
    impossible: list[Any] = [
        [],
        {},
        {**good, "rating": "high"},
        {**good, "rating": float("nan")},
        {**good, "versions": [{"version": -1}]},
        {**good, "versions": [{"version": 1, "strength": 3}]},
        {**good, "versions": [{"version": 1.5}]},
        {**good, "versions": 3},
    ]
    for bad in impossible:
        with pytest.raises(CodecError, match="this is not a league"):
            other.load_json(bad)
    assert other.versions == league.versions


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="size is 1; it must be >= 2"):
        League(size=1)
