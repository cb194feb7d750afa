"""The settings of a sweep's file, one class a section: the one place for meaning, unit, range and default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from surreal.config.schema.fields import Section


def _seeds(value: object) -> object:
    """Read a number as so many seeds, from 0 on."""
    return list(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value


class MedianPruner(Section):
    """Ends a trial whose best return so far is below the median of the others after the same number of env steps."""

    type: Literal["median"]
    interval_env_steps: int = Field(ge=1)
    """Env steps of a run from one look to the next."""

    startup_trials: int = Field(5, ge=0)
    """Trials that must have ended before any is pruned. Raising it prunes later, with more evidence."""

    warmup_env_steps: int = Field(0, ge=0)
    """Env steps that a run takes before it can be pruned."""


class HalvingPruner(Section):
    """Asynchronous successive halving (Li et al. 2018, arXiv:1810.05934): at each rung only the best continue."""

    type: Literal["successive_halving"]
    interval_env_steps: int = Field(ge=1)
    """Env steps of a run from one look to the next; also those of the first rung."""

    reduction_factor: int = Field(4, ge=2)
    """Factor between rungs: one in this many trials continues, and the next rung is this many times as far. Raising it
    prunes more."""


class SearchConfig(Section):
    """Optuna chooses the settings of each trial."""

    space: dict[str, Any] = Field(min_length=1)
    """Settings and the values to choose from: a list, or `{low: ..., high: ..., log: ..., step: ...}`."""

    trials: int = Field(ge=1, le=100_000)
    """Number of trials."""

    sampler: Literal["tpe", "random"] = "tpe"
    """Method of choosing values: `tpe` learns from earlier trials (tree-structured Parzen estimator)."""

    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the sampler; the runs' seeds are `seeds`."""

    pruner: Annotated[MedianPruner | HalvingPruner, Field(discriminator="type")] | None = None
    """Rule that ends unpromising trials, by the returns of their evaluations. Unset: all trials run to the end."""


class ScoreConfig(Section):
    """Combination of the evaluations of a trial's runs into one number; higher is better."""

    evaluation: Literal["best", "last"] = "last"
    """Round of a run's evaluation that counts: the best one is above what a policy reaches on average, because it was
    chosen among many."""

    seeds: Literal["mean", "iqm"] = "mean"
    """Combination of the seeds: their mean, or the mean of the middle half (interquartile mean), which one lucky or
    failed run does not affect."""


class SweepConfig(Section):
    """A sweep."""

    version: Literal[1] = 1
    """Version of the file format."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the sweep's folder in `sweeps`; runs are named after it. Default: the file's name."""

    base: str = Field(min_length=1)
    """Configuration of the runs: a preset, or a YAML file, relative to this one."""

    fixed: dict[str, Any] = Field({}, alias="set")
    """Settings by their dotted names that differ from `base` in all runs."""

    grid: dict[str, Any] | None = None
    """Settings and the values to combine: a list, or `{low: ..., high: ..., count: ..., log: ...}`. Without grid and
    search there is one trial."""

    search: SearchConfig | None = None
    """A search instead of a grid."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], BeforeValidator(_seeds)] = Field([0], min_length=1)
    """Seeds of each trial's runs: a list, or their number, from 0 on."""

    score: ScoreConfig = ScoreConfig()
    """How a trial is judged."""

    parallel: int | None = Field(None, ge=1, le=1024)
    """Number of runs at once. Unset: as many as this machine's cores and free memory allow."""

    max_failures: int = Field(5, ge=0)
    """Number of trials that may fail; one more ends the sweep."""

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if self.grid is not None and self.search is not None:
            raise ValueError("grid and search exclude each other")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds has one twice")
        return self
