"""Plain annotations judge the values of a YAML file; all others leave that to the constructor."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from surreal.config.checking.arg_types import constructor_types, wrong_type


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


def test_annotations_that_cannot_be_read_are_none() -> None:
    class Odd:
        def __init__(self, size: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
            pass

    assert constructor_types(Odd) == {}
