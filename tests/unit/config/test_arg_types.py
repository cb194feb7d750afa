"""Plain annotations judge the values of a YAML file; all others leave that to the constructor."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from surreal.base.errors import ConfigError
from surreal.base.ranges import Unreadable, annotations_of
from surreal.config.classes import check_args, wrong_type


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (3, int),
        (3, float),
        (float("inf"), float),
        (None, float | None),
        ("adam", str),
        ("adam", Literal["adam", "rmsprop"]),
        ([64, 32], tuple[int, ...]),
        ([64, 32], Sequence[int]),
        ({"a": 1}, Mapping[str, int]),
        ([{"a": None}], list[dict[str, Any]]),
        (True, bool),
        ("anything", Any),
        ("somewhere", Path),
        ("somewhere", int | Path),
        ("relu", Callable[[int], int] | None),
        (datetime.date(2026, 1, 1), str),
    ],
)
def test_what_fits_or_cannot_be_judged_passes(value: object, annotation: Any) -> None:
    assert wrong_type(value, annotation) is None


@pytest.mark.parametrize(
    ("value", "annotation", "must"),
    [
        ("fast", float, "a number"),
        ("1", int, "a whole number"),
        (1.5, int, "a whole number"),
        (True, int, "a whole number"),
        (1, bool, "true or false"),
        (1, str, "text"),
        (None, float, "a number"),
        ("none", float | None, "a number or null"),
        ("sgd", Literal["adam", "rmsprop"], "'adam' or 'rmsprop'"),
        (64, tuple[int, ...], "a list"),
        ([64, "many"], Sequence[int], "a list"),
        ([1], Mapping[str, int], "a mapping"),
    ],
)
def test_what_is_plainly_wrong_is_said(value: object, annotation: Any, must: str) -> None:
    assert wrong_type(value, annotation) == must


class Odd:
    def __init__(self, size: Missing, width: int, ratio: 1 / 0 = 0) -> None:  # type: ignore[name-defined,valid-type]  # noqa: F821
        pass


def test_an_annotation_that_cannot_be_read_says_why_and_takes_no_other_along() -> None:
    found = annotations_of(Odd.__init__)
    assert found["width"] is int
    assert found["size"] == Unreadable("NameError: name 'Missing' is not defined")
    assert found["ratio"] == Unreadable("ZeroDivisionError: division by zero")


def test_an_argument_that_cannot_be_checked_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert check_args(Odd, {"size": 3, "width": 4}, "model.args") == {"size": 3, "width": 4}
    reason = "its type in Odd cannot be read (NameError: name 'Missing' is not defined)"
    assert caplog.messages == [f"model.args.size is not checked: {reason}"]
    with pytest.raises(ConfigError, match=r"model\.args\.width is 'four'; Odd needs a whole number"):
        check_args(Odd, {"size": 3, "width": "four"}, "model.args")
