"""Spaces written down in a configuration, for environments that exist only elsewhere and cannot be asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from surreal.config.schema.fields import Section

_Sizes = list[Annotated[int, Field(ge=0, le=1 << 24)]]


class BoxSpace(Section):
    """Arrays of numbers."""

    type: Literal["box"]
    shape: _Sizes
    """Size along each axis; [] is a single number."""

    dtype: Literal["float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"] = "float32"
    """Kind of the numbers; images of bytes are `uint8`."""

    low: float | None = None
    """Least value; unset: what the dtype can hold."""

    high: float | None = None
    """Largest value; unset: what the dtype can hold."""

    @model_validator(mode="after")
    def _check_bounds(self) -> BoxSpace:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low, {self.low:g}, must be <= high, {self.high:g}")
        return self


class DiscreteSpace(Section):
    """One of n choices."""

    type: Literal["discrete"]
    n: int = Field(ge=1, le=1 << 24)
    """How many choices."""

    start: int = 0
    """The first of them."""


class MultiDiscreteSpace(Section):
    """Several choices at once."""

    type: Literal["multi_discrete"]
    nvec: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """How many choices each has."""


class MultiBinarySpace(Section):
    """Several switches."""

    type: Literal["multi_binary"]
    n: int = Field(ge=1, le=1 << 24)
    """How many."""


class DictSpace(Section):
    """Spaces with names."""

    type: Literal["dict"]
    spaces: dict[str, Space] = Field(min_length=1)
    """Name to space."""


class TupleSpace(Section):
    """Spaces in a row."""

    type: Literal["tuple"]
    spaces: list[Space] = Field(min_length=1)
    """In their order."""


Space = Annotated[
    BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace | DictSpace | TupleSpace,
    Field(discriminator="type"),
]

DictSpace.model_rebuild()
TupleSpace.model_rebuild()
