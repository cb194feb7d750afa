"""Which checkpoints are the best, and that they outlive the newest ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.checkpoint.store import CheckpointStore, Ranking, Round, Score
from tests.examples import examples


def ranked(steps: list[int], *rounds: tuple[float, int, float]) -> Ranking:
    ranking = Ranking()
    ranking.add([Round(*each) for each in rounds], steps)
    return ranking


def test_score_is_the_mean_of_the_rounds_nearest_to_a_checkpoint() -> None:
    ranking = ranked([100, 200], (1, 90, 1.0), (2, 140, 2.0), (3, 150, 10.0), (4, 160, 20.0))
    assert ranking.score(100) == Score(1.5, 2)
    assert ranking.score(200) == Score(15.0, 2)


def test_a_round_is_counted_once_and_waits_for_a_later_checkpoint() -> None:
    rounds = [Round(1, 90, 1.0), Round(2, 180, 5.0)]
    ranking = Ranking()
    ranking.add(rounds, [100])
    ranking.add(rounds, [100])
    assert (ranking.score(100), ranking.last_time) == (Score(1.0, 1), 1)
    ranking.add(rounds, [100, 200])
    assert ranking.score(200) == Score(5.0, 1)


def test_rounds_that_are_passed_over_never_count() -> None:
    ranking = ranked([100], (1, 90, 1.0), (2, 180, 5.0))
    ranking.skip([Round(2, 180, 5.0)])
    ranking.add([Round(2, 180, 5.0), Round(3, 190, 7.0)], [100, 200])
    assert ranking.score(200) == Score(7.0, 1)


def test_of_equals_the_later_is_the_better_and_those_without_a_score_are_none() -> None:
    ranking = ranked([100, 200, 300], (1, 100, 5.0), (2, 200, 5.0))
    assert ranking.best([100, 200, 300], 3) == [200, 100]
    assert ranking.best([100, 300], 1) == [100]


@examples(100)
@given(
    steps=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    rounds=st.lists(st.tuples(st.integers(0, 60), st.floats(-1e3, 1e3)), max_size=12),
    cut=st.integers(0, 12),
)
def test_scores_are_the_same_whether_rounds_come_at_once_or_in_parts(
    steps: list[int], rounds: list[tuple[int, float]], cut: int
) -> None:
    done = [Round(float(time), updates, mean) for time, (updates, mean) in enumerate(sorted(rounds))]
    whole, parts = Ranking(), Ranking()
    whole.add(done, steps)
    parts.add(done[:cut], steps)
    if text := parts.to_json(steps):
        parts = Ranking.from_json(text)
    parts.add(done, steps)
    for step in steps:
        near = [each.mean_return for each in done if each.updates <= max(steps) and nearest(steps, each) == step]
        score = whole.score(step)
        assert parts.score(step) == pytest.approx(score) if score else not near
        if score:
            assert score == (pytest.approx(sum(near) / len(near), abs=1e-9), len(near))


def nearest(steps: list[int], done: Round) -> int:
    distance = min(abs(step - done.updates) for step in steps)
    return max(step for step in steps if abs(step - done.updates) == distance)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"scores": {"x": {}}}',
        '{"scores": {"1": {"mean_return": 1}}}',
        '{"last_time": 1, "scores": {"1": {"mean_return": NaN, "rounds": 1}}}',
        b"\xff",
    ],
)
def test_damaged_scores_are_none(text: str | bytes) -> None:
    ranking = Ranking.from_json(text)
    assert ranking.best(range(5), 5) == []


def test_of_two_rankings_the_one_that_saw_later_rounds_is_right() -> None:
    old, new = ranked([100, 200], (1, 100, 1.0), (2, 200, 2.0)), ranked([100], (3, 100, 9.0))
    for first, second in ((old, new), (new, old)):
        both = Ranking()
        both.merge(first)
        both.merge(second)
        assert (both.score(100), both.score(200), both.last_time) == (Score(9.0, 1), Score(2.0, 1), 3)


def test_who_knows_no_scores_removes_none_that_others_have_scored(tmp_path: Path) -> None:
    place = CheckpointStore(tmp_path, keep=1, keep_best=1)
    place.put(100, b"content", ranked([100], (1, 100, 9.0)))
    place.put(200, b"content")
    place.put(300, b"content", ranked([300], (2, 300, 5.0)))
    assert place.steps() == [100, 300]
    assert (place.ranking().score(100), place.ranking().score(300)) == (Score(9.0, 1), Score(5.0, 1))


def test_a_new_checkpoint_has_no_score_of_the_one_that_was_set_aside(tmp_path: Path) -> None:
    place = CheckpointStore(tmp_path, keep=9, keep_best=1)
    for step in (100, 200):
        place.put(step, b"content", ranked([100, 200], (1, 100, 1.0), (2, 200, 9.0)))
    place.set_later_aside(100)
    place.put(200, b"other content")
    assert place.ranking().best(place.steps(), 9) == [100]


def test_the_best_outlive_the_newest() -> None:
    place = CheckpointStore("memory://ranking/checkpoints", keep=2, keep_best=2)
    ranking = Ranking()
    means = {100: 1.0, 200: 8.0, 300: 2.0, 400: 9.0, 500: 3.0, 600: 4.0}
    saved = []
    for number, (step, mean) in enumerate(means.items()):
        saved.append(step)
        ranking.add([Round(number, step, mean)], saved)
        place.put(step, b"content", ranking)
    assert place.steps() == [200, 400, 500, 600]
    found = place.ranking()
    assert found.best(place.steps(), 9) == [400, 200, 600, 500]
    assert found.score(100) is None, "scores of what is gone are gone"
