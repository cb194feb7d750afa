"""Ranges are declared once, in annotations: they hold for direct callers, for configurations and in the pages."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
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
    ShareBelowOne,
    checked,
    describe_range,
    refusal,
)
from surreal.config import check_args


class Noise:
    @checked
    def __init__(self, scale: Positive, share: Share | None = 0.5, *, steps: PositiveInt = 8, note: str = "") -> None:
        self.given = (scale, share, steps, note)


class Colored(Noise):
    @checked
    def __init__(
        self,
        scale: Positive,
        color: Literal["white", "pink"] = "white",
        sizes: Sequence[PositiveInt] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scale, **options)


@checked
@dataclass(frozen=True)
class Settings:
    scale: Positive
    color: Literal["white", "pink"] | None = None


@pytest.mark.parametrize(
    ("annotation", "words", "inside", "outside"),
    [
        (Positive, "> 0", 1e-9, 0),
        (NonNegative, ">= 0", 0, -1e-9),
        (Share, "in [0, 1]", 1, 1.001),
        (PositiveShare, "in (0, 1]", 0.1, 0.0),
        (PositiveInt, ">= 1", 1, 0),
        (NonNegativeInt, ">= 0", 0, -1),
        (ShareBelowOne, "in [0, 1)", 0.0, 1.0),
        (Annotated[float, Gt(0), Lt(1)], "in (0, 1)", 0.5, 1.0),
        (Positive | None, "> 0", None, -2),
    ],
)
def test_a_range_has_words_and_limits(annotation: Any, words: str, inside: Any, outside: Any) -> None:
    assert describe_range(annotation) == words
    assert refusal(inside, annotation) == ""
    assert refusal(outside, annotation) == refusal(math.nan, annotation) == f"it must be {words}"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Literal["white", "pink"], "white or pink"),
        (Literal["white", "pink", "red"] | None, "one of white, pink, red"),
    ],
)
def test_a_choice_has_words_and_refuses_other_values(annotation: Any, words: str) -> None:
    assert describe_range(annotation) == words
    assert refusal("pink", annotation) == ""
    assert refusal("blue", annotation) == refusal(3, annotation) == f"it must be {words}"
    assert (refusal(None, annotation) == "") == (type(None) in getattr(annotation, "__args__", ()))


@pytest.mark.parametrize("annotation", [Sequence[PositiveInt], list[PositiveInt] | None, tuple[PositiveInt, ...]])
def test_the_range_of_elements_holds_for_each(annotation: Any) -> None:
    assert refusal([1, 2], annotation) == refusal((), annotation) == refusal("0", annotation) == ""
    assert refusal([1, 0], annotation) == refusal((0,), annotation) == "each must be >= 1"


@pytest.mark.parametrize("annotation", [float, int | None, str, int | Literal["all"], Sequence[int]])
def test_without_a_range_everything_passes(annotation: Any) -> None:
    assert describe_range(annotation) == ""
    assert refusal(-1e30, annotation) == ""


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


def test_a_class_adds_its_ranges_to_those_of_its_base() -> None:
    assert Colored(1.0, "pink", (8, 8), steps=2).given == (1.0, 0.5, 2, "")
    with pytest.raises(ValueError, match=r"^color is 'blue'; it must be white or pink$"):
        Colored(1.0, "blue")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^sizes is \[8, 0\]; each must be >= 1$"):
        Colored(1.0, sizes=[8, 0])
    with pytest.raises(ValueError, match=r"^steps is 0; it must be >= 1$"):
        Colored(1.0, steps=0)


def test_a_dataclass_refuses_them_too() -> None:
    assert Settings(1.0) == Settings(1.0, None)
    with pytest.raises(ValueError, match=r"^scale is 0; it must be > 0$"):
        Settings(0)
    with pytest.raises(ValueError, match=r"^color is 'blue'; it must be white or pink$"):
        Settings(1.0, "blue")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"scale": -1.0}, r"model.args.scale is -1.0; it must be > 0 \(app.yaml line 3\)"),
        ({"scale": 1, "steps": 0}, r"model.args.steps is 0; it must be >= 1 \(app.yaml line 3\)"),
        ({"scale": 1, "color": "blue"}, r"model.args.color is 'blue'; it must be white or pink \(app.yaml line 3\)"),
        ({"scale": 1, "sizes": [8, 0]}, r"model.args.sizes is \[8, 0\]; each must be >= 1 \(app.yaml line 3\)"),
        ({"scale": 1, "sizes": [8, 0.5]}, r"model.args.sizes is \[8, 0.5\]; each must be >= 1"),
        ({"scale": 1, "sizes": [8, 2.5]}, r"model.args.sizes is \[8, 2.5\]; Colored needs a list or null"),
        ({"scale": "much"}, r"model.args.scale is 'much'; Colored needs a number \(app.yaml line 3\)"),
        ({"scale": 1, "share": "half"}, r"model.args.share is 'half'; Colored needs a number or null"),
    ],
)
def test_a_configuration_gets_them_with_the_place(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_args(Colored, args, "model.args", source_of=lambda key: "app.yaml line 3")


@pytest.mark.parametrize(
    ("given", "must"),
    [
        ({"scale": np.float32(-1)}, "it must be > 0"),
        ({"scale": 1.0, "steps": np.int64(0)}, "it must be >= 1"),
        ({"scale": None}, "it must be > 0"),
        ({"scale": "1"}, "it must be > 0"),
        ({"scale": 1.0, "share": "1"}, r"it must be in \[0, 1\]"),
    ],
)
def test_numbers_of_numpy_count_and_what_is_no_number_is_refused(given: dict[str, Any], must: str) -> None:
    with pytest.raises(ValueError, match=must):
        Noise(**given)
    assert Noise(np.float64(2), None, steps=np.int64(3)).given == (2.0, None, 3, "")


def test_elements_are_checked_in_every_kind_of_list() -> None:
    @checked
    def build(sizes: Sequence[PositiveInt] | str) -> Any:
        return sizes

    for sizes in ([8, 0], (8, 0), np.array([8, 0])):
        with pytest.raises(ValueError, match="each must be >= 1"):
            build(sizes)
    assert build("small") == "small"
