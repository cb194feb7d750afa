"""Bars, bands and sparklines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.run.view.live.text import ASCII, UNICODE, Glyphs, describe_balance, draw_band, draw_bar, draw_sparkline


@pytest.mark.parametrize(
    ("share", "bar"),
    [
        (0.0, "....."),
        (0.5, "##..."),
        (0.999, "####."),
        (1.0, "#####"),
        (7.0, "#####"),
        (-1.0, "....."),
        (math.nan, "....."),
    ],
)
def test_only_what_is_whole_is_a_full_bar(share: float, bar: str) -> None:
    assert draw_bar(share, 5, ASCII) == bar


@pytest.mark.parametrize(
    ("position", "band"),
    [(0.0, "|o----|"), (0.5, "|--o--|"), (1.0, "|----o|"), (math.nan, "|-----|"), (9.0, "|----o|")],
)
def test_a_band_shows_where_in_it_something_is(position: float, band: str) -> None:
    assert draw_band(position, 7, ASCII) == band


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (0.0, "agents wait for the learner"),
        (0.5, "learning and acting in balance"),
        (1.0, "the learner waits for agents"),
        (math.nan, "-"),
    ],
)
def test_the_balance_of_learning_and_acting_is_in_words(position: float, words: str) -> None:
    assert describe_balance(position) == words


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert draw_sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, UNICODE) == "▁▂▃▄▅▆▇█"
    assert draw_sparkline([-300, -200, math.nan, -100], 8, ASCII) == "_= #"
    assert draw_sparkline([5.0], 8, UNICODE) == "▅"
    assert draw_sparkline([], 8, UNICODE) == draw_sparkline([math.nan], 8, UNICODE) == ""


def test_more_values_than_cells_become_means() -> None:
    assert draw_sparkline([0, 0, 0, 0, 7, 7, 7, 7], 2, UNICODE) == "▁█"
    assert draw_sparkline([0, math.nan, math.nan, math.nan, 7, 7], 3, UNICODE) == "▁ █"


@given(
    st.lists(st.floats(), max_size=50), st.integers(1, 30), st.sampled_from([UNICODE, ASCII])
)  # infinities, NaN and the largest numbers too
def test_no_values_break_a_sparkline(values: list[float], width: int, glyphs: Glyphs) -> None:
    drawn = draw_sparkline(values, width, glyphs)
    assert len(drawn) in (0, min(len(values), width))
    assert set(drawn) <= {*glyphs.levels, " "}
