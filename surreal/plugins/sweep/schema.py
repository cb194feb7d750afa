"""The settings of a sweep's file, one class for each section: the one place for meaning, unit, range and default.

A setting that varies has a `Dimension`: a list of values, or a range of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from surreal.config.schema.fields import Section

#: A grid with more combinations is a mistake.
MAX_COMBINATIONS = 10_000


@dataclass(frozen=True)
class Choice:
    """One of some values of any kind."""

    values: tuple[Any, ...]

    def points(self) -> tuple[Any, ...]:
        """Return the values that a grid tries."""
        return self.values

    def ends(self) -> tuple[Any, ...]:
        """Return the values to check, which are all of them."""
        return self.values


class Range(Section):
    """Numbers from `low` to `high`, both included; whole numbers if both ends are."""

    low: float | int
    """Smallest value."""

    high: float | int
    """Largest value."""

    log: bool = False
    """Whether values are spread evenly on a logarithmic scale, for settings such as learning rates."""

    count: int | None = Field(None, ge=1, le=1000)
    """Number of values that a grid tries, evenly spread; a search does not use it."""

    step: float | int | None = Field(None, gt=0)
    """Distance between the values that a search tries. Unset: any value, or any whole number."""

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
        return isinstance(self.low, int) and isinstance(self.high, int)

    def points(self) -> tuple[Any, ...]:
        """Return the values that a grid tries, each once."""
        count = self.count or 1
        if count == 1:
            return (self.low,)
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        inner = [low + (high - low) * number / (count - 1) for number in range(1, count - 1)]
        between = [math.exp(value) if self.log else value for value in inner]
        rounded = [round(value) if self.is_whole else float(f"{value:.6g}") for value in between]
        return tuple(dict.fromkeys([self.low, *rounded, self.high]))

    def ends(self) -> tuple[Any, ...]:
        """Return the values to check: the ends are the first to be out of a setting's range."""
        return self.low, self.high


Dimension = Choice | Range


def combinations(grid: Mapping[str, Dimension]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values; the last setting changes fastest. An empty grid has one, empty."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*(d.points() for d in grid.values()))]


def num_combinations(grid: Mapping[str, Dimension]) -> int:
    """Count the combinations of a grid without making them."""
    return math.prod(len(dimension.points()) for dimension in grid.values())


class MedianPruner(Section):
    """Ends a trial whose best return so far is below the median of the others' returns after as many env steps."""

    type: Literal["median"]
    interval_env_steps: int = Field(ge=1)
    """Env steps of a run between two checks."""

    startup_trials: int = Field(5, ge=0)
    """Trials that must have ended before any is pruned. Raising it prunes later, with more evidence."""

    warmup_env_steps: int = Field(0, ge=0)
    """Env steps of a run before which it is not pruned."""


class HalvingPruner(Section):
    """Asynchronous successive halving (Li et al. 2018, arXiv:1810.05934): at each rung only the best continue."""

    type: Literal["successive_halving"]
    interval_env_steps: int = Field(ge=1)
    """Env steps of a run between two checks; also those of the first rung."""

    reduction_factor: int = Field(4, ge=2)
    """Factor between the env steps of two rungs; one trial in this many continues from a rung. Raising it prunes
    more."""


class SearchConfig(Section):
    """Optuna chooses the settings of each trial."""

    space: dict[str, Any] = Field(min_length=1)
    """Settings and the values to choose from: a list, or `{low: ..., high: ..., log: ..., step: ...}`."""

    trials: int = Field(ge=1, le=100_000)
    """Number of trials."""

    sampler: Literal["tpe", "random"] = "tpe"
    """Sampler of the values: `tpe` learns from earlier trials (tree-structured Parzen estimator)."""

    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the sampler; `seeds` has the seeds of the runs."""

    pruner: Annotated[MedianPruner | HalvingPruner, Field(discriminator="type")] | None = None
    """Pruner, which ends hopeless trials early by the returns of their evaluations. Unset: no trial ends early."""


class ScoreConfig(Section):
    """Score of a trial, from the evaluations of its runs; higher is better."""

    evaluation: Literal["best", "last"] = "last"
    """Round of a run's evaluation that counts. The best of many rounds is above the policy's average return."""

    seeds: Literal["mean", "iqm"] = "mean"
    """Average over the seeds: their mean, or the mean of the middle half (interquartile mean), which one lucky or
    failed run does not move."""


#: Reads a number N as the seeds 0 to N - 1.
_Counted = BeforeValidator(lambda value: list(range(value)) if type(value) is int else value)


class SweepConfig(Section):
    """All settings of a sweep's file."""

    version: Literal[1] = 1
    """Version of the file format."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the sweep's folder in `sweeps`; runs are named after it. If the file does not set it: the file's name."""

    base: str = Field(min_length=1)
    """Configuration of the runs: a preset, or a YAML file, relative to this one."""

    fixed: dict[str, Any] = Field({}, alias="set")
    """Settings by their dotted names that differ from `base` in all runs."""

    grid: dict[str, Any] | None = None
    """Settings and the values to combine: a list, or `{low: ..., high: ..., count: ..., log: ...}`. Without grid and
    search there is one trial."""

    search: SearchConfig | None = None
    """A search instead of a grid."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], _Counted] = Field([0], min_length=1)
    """Seeds of each trial's runs: a list, or their number, counted from 0."""

    score: ScoreConfig = ScoreConfig()
    """Score of a trial."""

    parallel: int | None = Field(None, ge=1, le=1024)
    """Number of runs at once. Unset: as many as this machine's cores and free memory allow."""

    max_failures: int = Field(5, ge=0)
    """Number of trials that may fail; one more ends the sweep."""

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if self.grid is not None and self.search is not None:
            raise ValueError("grid and search exclude each other")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds contains a seed twice")
        return self
