"""Numbers, durations and texts of a line."""

from __future__ import annotations

import math

import pytest
from rich.text import Text

from surreal.run.view.live.text import ASCII, UNICODE, duration, fitted, number, plain, rate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.6, "1 min 0 s"),
        (754, "12 min 34 s"),
        (3600 * 5 + 61, "5 h 1 min"),
        (86400 * 3 + 7300, "3 d 2 h"),
        (1e9, "11574 d"),
        (-3.0, "0 s"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_are_short() -> None:
    assert [number(value) for value in (None, 1.25, -1234.5, 1.5e12, math.nan, -math.inf)] == [
        "-", "1.2", "-1,234.5", "1.5e+12", "nan", "-inf",
    ]  # fmt: skip
    assert [rate(value) for value in (0.0, 0.123, 9.96, 1234.5)] == ["0", "0.12", "10", "1,234"]


def test_a_text_from_elsewhere_steers_no_terminal() -> None:
    assert plain("a\x1b[31mb\nc\u202e", UNICODE) == "a [31mb c "
    assert plain("größer…", ASCII) == "gr??er?"


def test_what_is_too_long_ends_in_an_ellipsis() -> None:
    assert fitted(Text("abcdefgh"), 5, UNICODE).plain == "abcd…"
    assert fitted(Text("abcdefgh"), 5, ASCII).plain == "ab..."
    assert fitted(Text("abcdefgh"), 2, ASCII).plain == ".."
    assert fitted(Text("会議会議"), 5, UNICODE).cell_len <= 5
    assert fitted(Text("abc"), 3, UNICODE).plain == "abc"
