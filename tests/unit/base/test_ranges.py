"""Ranges are declared once, in annotations: they hold for direct callers, for configurations and in the pages."""

from __future__ import annotations

import inspect
import math
from typing import Annotated, Any

import pytest
from annotated_types import Gt, Lt

from surreal.base.errors import ConfigError
from surreal.base.ranges import (
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Share,
    checked,
    describe_range,
    is_in_range,
)
from surreal.config import check_args


class Noise:
    @checked
    def __init__(self, scale: Positive, share: Share | None = 0.5, *, steps: PositiveInt = 8, note: str = "") -> None:
        self.given = (scale, share, steps, note)


@pytest.mark.parametrize(
    ("annotation", "words", "inside", "outside"),
    [
        (Positive, "> 0", 1e-9, 0),
        (NonNegative, ">= 0", 0, -1e-9),
        (Share, "in [0, 1]", 1, 1.001),
        (PositiveShare, "in (0, 1]", 0.1, 0.0),
        (PositiveInt, ">= 1", 1, 0),
        (NonNegativeInt, ">= 0", 0, -1),
        (Annotated[float, Gt(0), Lt(1)], "in (0, 1)", 0.5, 1.0),
        (Positive | None, "> 0", None, -2),
    ],
)
def test_a_range_has_words_and_limits(annotation: Any, words: str, inside: Any, outside: Any) -> None:
    assert describe_range(annotation) == words
    assert is_in_range(inside, annotation)
    assert not is_in_range(outside, annotation)
    assert not is_in_range(math.nan, annotation)


@pytest.mark.parametrize("annotation", [float, int | None, str])
def test_without_a_range_everything_passes(annotation: Any) -> None:
    assert describe_range(annotation) == ""
    assert is_in_range(-1e30, annotation)


def test_a_direct_caller_gets_the_name_the_value_and_the_range() -> None:
    assert Noise(1.0, None, steps=2).given == (1.0, None, 2, "")
    with pytest.raises(ValueError, match=r"^scale is 0; it must be > 0$"):
        Noise(0)
    with pytest.raises(ValueError, match=r"^share is 1.5; it must be in \[0, 1\]$"):
        Noise(1.0, 1.5)
    with pytest.raises(ValueError, match=r"^steps is 0; it must be >= 1$"):
        Noise(1.0, steps=0)
    with pytest.raises(TypeError, match="missing"):
        Noise()  # type: ignore[call-arg]
    assert list(inspect.signature(Noise).parameters) == ["scale", "share", "steps", "note"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"scale": -1.0}, r"model.args.scale is -1.0; it must be > 0 \(app.yaml line 3\)"),
        ({"scale": 1, "steps": 0}, r"model.args.steps is 0; it must be >= 1 \(app.yaml line 3\)"),
        ({"scale": "much"}, r"model.args.scale is 'much'; Noise needs a number \(app.yaml line 3\)"),
        ({"scale": 1, "share": "half"}, r"model.args.share is 'half'; Noise needs a number or null"),
    ],
)
def test_a_configuration_gets_them_with_the_place(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_args(Noise, args, "model.args", source_of=lambda key: "app.yaml line 3")
