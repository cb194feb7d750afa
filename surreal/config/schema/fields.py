"""Building blocks of the schema: the base of all sections, sizes, addresses, exploration schedules, spaces."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator


class Section(BaseModel):
    """Base of all sections: unknown keys are refused, values are never converted silently, nothing can be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class ClassSection(Section):
    """A section that names a class, built-in or a user's, and the arguments of its constructor."""

    class_path: str = Field(alias="class", min_length=1)
    """Import path of the class, `package.module.Class`; the YAML file's folder is on the import path."""

    args: dict[str, Any] = {}
    """Keyword arguments of the constructor, under its parameter names; leave out what other settings decide."""


#: Redis writes sizes so: `k` is 1000, `kb` is 1024.
_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 2**10, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_size(value: object) -> object:
    """Turn "512mb" into bytes, as Redis reads it; leaves it to the field to judge anything that is not text."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError('a size is a number of bytes, or a text such as "512mb" or "2gb"')
    return int(float(match[1]) * _UNITS[match[2]])


#: Bytes, >= 1; YAML may write "512mb".
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=1)]


def to_lower(value: object) -> object:
    """Read a text in any case; the field judges anything that is not text."""
    return value.lower() if isinstance(value, str) else value


_SCHEMES = (
    "redis://",
    "rediss://",
    "unix://",
    *(f"{tls}+{kind}://" for tls in ("redis", "rediss") for kind in ("cluster", "sentinel")),
)
_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/@]+):(\d{1,5})")


def check_address(value: str) -> str:
    """Refuse text that is not the address of a Redis server; the error names the accepted forms."""
    if value.startswith(_SCHEMES) and len(value.split("://", 1)[1]) > 0:
        return value
    match = _HOST_PORT.fullmatch(value)
    if match is None or not 0 < int(match[1]) < 65536:
        raise ValueError(
            "an address is host:port, redis://..., rediss://..., unix:///path/to/socket, "
            "redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/SERVICE"
        )
    return value


#: Where a Redis server listens.
Address = Annotated[str, AfterValidator(check_address)]


_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?|mps")


def check_device(value: str) -> str:
    """Refuse text that is not the name of a device on any machine; the error names the accepted forms."""
    if _DEVICE.fullmatch(value) is None:
        raise ValueError("it must be auto, cpu, cuda, cuda:N (the GPU of that number, from 0) or mps")
    return value


#: Where a network computes.
Device = Annotated[str, AfterValidator(check_device)]


class ConstantExploration(Section):
    """The same exploration rate throughout the run."""

    type: Literal["constant"]
    value: float = Field(ge=0, le=1)
    """Probability of a random action."""


class LinearExploration(Section):
    """Linear decay from `start` to `end`, then constant."""

    type: Literal["linear"]
    start: float = Field(1.0, ge=0, le=1)
    """Exploration rate until `begin`."""

    end: float = Field(0.05, ge=0, le=1)
    """Exploration rate after `begin + steps`. Raising it keeps agents exploring, at the expense of their
    returns."""

    steps: int = Field(ge=1)
    """Length of the decay in env steps of the whole run. Raising it explores for longer."""

    begin: int = Field(0, ge=0)
    """Env step of the whole run at which the decay begins."""


class PiecewiseExploration(Section):
    """Linear interpolation between points; constant before the first and after the last."""

    type: Literal["piecewise"]
    points: list[Annotated[tuple[int, float], Strict(False)]] = Field(min_length=1)
    """Pairs `[env step, rate]`; env steps count the whole run and must increase."""

    @model_validator(mode="after")
    def _check_points(self) -> PiecewiseExploration:
        steps = [step for step, _ in self.points]
        if steps != sorted(set(steps)) or steps[0] < 0:
            raise ValueError("the steps of points must be >= 0 and rise")
        if not all(0 <= value <= 1 for _, value in self.points):
            raise ValueError("the rates of points must lie in 0..1")
        return self


class ApeXExploration(Section):
    """A different constant rate for each environment (Horgan et al. 2018, arXiv:1803.00933, section 4).

    Environment i of N, counted across all agents, explores at base^(1 + alpha * i / (N - 1)).
    """

    type: Literal["ape_x"]
    base: float = Field(0.4, gt=0, le=1)
    """Rate of the first environment. Raising it explores more everywhere."""

    alpha: float = Field(7.0, ge=0)
    """How fast the rate falls from one environment to the next; 0 gives every environment `base`."""


class OwnExploration(ClassSection):
    """Your schedule."""

    type: Literal["class"] = "class"


Exploration = Annotated[
    ConstantExploration | LinearExploration | PiecewiseExploration | ApeXExploration | OwnExploration,
    Field(discriminator="type"),
]


def short_exploration(value: object) -> object:
    """Read a bare number as a constant exploration rate, a list of points as lines between them, and a class."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"type": "constant", "value": value}
    if isinstance(value, list):
        return {"type": "piecewise", "points": value}
    if isinstance(value, dict) and "class" in value:
        return {"type": "class", **value}
    return value


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
