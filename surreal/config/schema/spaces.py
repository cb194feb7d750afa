"""Spaces written out in a configuration, for environments that exist only elsewhere and cannot be asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from surreal.config.schema.fields import Section

_Sizes = list[Annotated[int, Field(ge=0, le=1 << 24)]]


class BoxSpace(Section):
    """Arrays of numbers."""

    type: Literal["box"]
    shape: _Sizes
    """Size along each axis; [] for a single number."""

    dtype: Literal["float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"] = "float32"
    """Type of the numbers; byte images are `uint8`."""

    low: float | None = None
    """Smallest value. Unset: the smallest of the dtype."""

    high: float | None = None
    """Largest value. Unset: the largest of the dtype."""

    @model_validator(mode="after")
    def _check_bounds(self) -> BoxSpace:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low, {self.low:g}, must be <= high, {self.high:g}")
        return self


class DiscreteSpace(Section):
    """One of n options."""

    type: Literal["discrete"]
    n: int = Field(ge=1, le=1 << 24)
    """Number of options."""

    start: int = 0
    """Value of the first option."""


class MultiDiscreteSpace(Section):
    """Several discrete choices at once."""

    type: Literal["multi_discrete"]
    nvec: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Number of options of each choice."""


class MultiBinarySpace(Section):
    """Several on/off switches."""

    type: Literal["multi_binary"]
    n: int = Field(ge=1, le=1 << 24)
    """Number of switches."""


class DictSpace(Section):
    """Named spaces."""

    type: Literal["dict"]
    spaces: dict[str, Space] = Field(min_length=1)
    """Space by name."""


class TupleSpace(Section):
    """A sequence of spaces."""

    type: Literal["tuple"]
    spaces: list[Space] = Field(min_length=1)
    """The spaces, in order."""


Space = Annotated[
    BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace | DictSpace | TupleSpace,
    Field(discriminator="type"),
]

DictSpace.model_rebuild()
TupleSpace.model_rebuild()
