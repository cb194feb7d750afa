"""The values that a sweep tries for a setting: a list of them, or a range of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from surreal.config.schema.fields import Section

#: A grid with more combinations is a mistake.
MAX_COMBINATIONS = 10_000


@dataclass(frozen=True)
class Choice:
    """One of these values, of any kind."""

    values: tuple[Any, ...]

    def points(self) -> tuple[Any, ...]:
        """What a grid tries."""
        return self.values

    def ends(self) -> tuple[Any, ...]:
        """All values: each may be wrong in its own way."""
        return self.values


class Range(Section):
    """Numbers from `low` to `high`, both included; integers if both ends are integers."""

    low: float | int
    """Smallest value."""

    high: float | int
    """Largest value."""

    log: bool = False
    """Whether values are spread evenly over orders of magnitude, as is best for learning rates."""

    count: int | None = Field(None, ge=1, le=1000)
    """Number of values that a grid tries, evenly spread; a search does not use it."""

    step: float | int | None = Field(None, gt=0)
    """Distance between the values that a search tries. Unset: any value, or any integer."""

    @model_validator(mode="after")
    def _check_ends(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low}, high is {self.high}; low must be < high")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}; with log it must be > 0")
        if self.log and self.step is not None:
            raise ValueError("step and log exclude each other")
        if self.is_whole and isinstance(self.step, float):
            raise ValueError(f"step is {self.step}; between whole numbers it must be whole")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def points(self) -> tuple[Any, ...]:
        """What a grid tries, each value once."""
        count = self.count or 1
        if count == 1:
            return (self.low,)
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        inner = [low + (high - low) * number / (count - 1) for number in range(1, count - 1)]
        between = [math.exp(value) if self.log else value for value in inner]
        values = [self.low, *map(self._plain, between), self.high]
        return tuple(dict.fromkeys(values))

    def ends(self) -> tuple[Any, ...]:
        """What is most likely to be out of a setting's range."""
        return self.low, self.high

    def _plain(self, value: float) -> float | int:
        """As a person would write it: six digits say enough of a value in between."""
        return round(value) if self.is_whole else float(f"{value:.6g}")


Dimension = Choice | Range


def combinations(grid: Mapping[str, Dimension]) -> list[dict[str, Any]]:
    """Every combination of a grid's values; the last setting changes fastest. Of an empty grid, one: no settings."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*(d.points() for d in grid.values()))]


def num_combinations(grid: Mapping[str, Dimension]) -> int:
    """How many combinations a grid has, without making them."""
    return math.prod(len(dimension.points()) for dimension in grid.values())
