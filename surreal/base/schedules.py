"""Schedules: values that change with the step, such as exploration rates and learning rates.

A schedule is a function of the step (the run's global env step in a run, the agent's own steps in a plain loop), so
it has no state, and a restarted process continues where it was.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surreal.base.ranges import (
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    PositiveShare,
    checked,
    describe_range,
    refusal,
)

#: A schedule as a setting other than a number: points, or a mapping with a type or a class.
ScheduleSettings: TypeAlias = Sequence[tuple[int, float]] | Mapping[str, Any]


class Schedule(ABC):
    """A number for every step >= 0."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """Return the value at a step."""


class ConstantSchedule(Schedule):
    """The same value at every step."""

    def __init__(self, value: float) -> None:
        self.value = float(value)

    def __call__(self, step: int) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"ConstantSchedule({self.value:g})"


class LinearSchedule(Schedule):
    """A straight line from `start` to `end`, then constant.

    Args:
        start: value up to the step `begin`.
        end: value from the step `begin + steps` on; may be above or below `start`.
        steps: length of the line; raising it slows the change.
        begin: step at which the line begins.
    """

    @checked
    def __init__(self, start: float, end: float, steps: PositiveInt, begin: NonNegativeInt = 0) -> None:
        self.start = float(start)
        self.end = float(end)
        self.steps = steps
        self.begin = begin

    def __call__(self, step: int) -> float:
        progress = (step - self.begin) / self.steps
        if progress <= 0.0:
            return self.start
        if progress >= 1.0:
            return self.end
        return self.start + progress * (self.end - self.start)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.start:g}, {self.end:g}, {self.steps}, begin={self.begin})"


class CosineSchedule(LinearSchedule):
    """Half a period of a cosine from `start` to `end`, then constant (SGDR, arXiv:1608.03983, eq. 5).

    It changes slowly at both ends. Its arguments are those of `LinearSchedule`.
    """

    def __call__(self, step: int) -> float:
        progress = min(max((step - self.begin) / self.steps, 0.0), 1.0)
        return self.start + 0.5 * (1.0 - math.cos(math.pi * progress)) * (self.end - self.start)


class PiecewiseSchedule(Schedule):
    """Straight lines between points; constant before the first and after the last.

    Args:
        points: pairs of step (>= 0, rising) and value, at least one.
    """

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        if not points:
            raise ValueError("a piecewise schedule needs at least one point")
        steps = [int(step) for step, _ in points]
        if steps[0] < 0 or any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError(f"the steps of the points are {steps}; they must be >= 0 and rise")
        self.points = tuple((step, float(value)) for step, (_, value) in zip(steps, points, strict=True))
        self._steps = steps

    def __call__(self, step: int) -> float:
        place = bisect_right(self._steps, step)
        if place == 0:
            return self.points[0][1]
        if place == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[place - 1], self.points[place]
        return low + (step - left) / (right - left) * (high - low)

    def __repr__(self) -> str:
        return f"PiecewiseSchedule({list(self.points)})"


class PerEnvSchedule:
    """One constant for each environment of an agent: a value for each slot of its pool, at least one."""

    def __init__(self, values: Sequence[float]) -> None:
        if not values:
            raise ValueError("a schedule per environment needs at least one value")
        self.values: NDArray[np.float64] = np.array(values, dtype=np.float64)

    def __call__(self, step: int) -> NDArray[np.float64]:
        """Return the values, [num_envs], indexed by environment id."""
        return self.values

    def __repr__(self) -> str:
        return f"PerEnvSchedule({self.values.tolist()})"


@checked
def ape_x_epsilon(index: int, count: int, base: PositiveShare = 0.4, alpha: NonNegative = 7.0) -> float:
    """Return the exploration rate of actor `index` of `count`: base^(1 + alpha * index / (count - 1)).

    Horgan et al. 2018, section 4, arXiv:1803.00933. A single actor explores at `base`.

    Args:
        index: number of the actor, 0 <= index < count.
        count: number of actors.
        base: rate of the first actor.
        alpha: raising it lowers the rates of later actors.
    """
    if not 0 <= index < count:
        raise ValueError(f"actor {index} of {count} does not exist; the index must be >= 0 and < {count}")
    place = index / (count - 1) if count > 1 else 0.0
    return float(base ** (1.0 + alpha * place))


def schedule_from_config(
    config: float | ScheduleSettings, *, indices: Sequence[int] = (0,), count: int = 1
) -> Schedule | PerEnvSchedule:
    """Build a schedule from plain data: a number, points, or a mapping with `type` and the arguments of that type.

    `{type: constant, value}`, `{type: linear, start, end, steps, begin}`, `{type: cosine}` with the same arguments,
    `{type: piecewise, points: [[step, value]]}`, `{type: ape_x, base, alpha}`, `{class: my_module.MySchedule, args}`.

    Args:
        config: the data.
        indices: for `ape_x`, indices of this agent's environments among the run's, in the order of its slots.
        count: for `ape_x`, number of environments in all agents of the run.

    Raises:
        ValueError: the type or the class is unknown, or an argument is missing, unknown or out of range.
    """
    if isinstance(config, int | float):
        return ConstantSchedule(config)
    if not isinstance(config, Mapping):
        return PiecewiseSchedule(config)
    args = dict(config)
    kind = args.pop("type", "class" if "class" in args else None)
    try:
        match kind:
            case "constant":
                return ConstantSchedule(**args)
            case "linear":
                return LinearSchedule(**args)
            case "cosine":
                return CosineSchedule(**args)
            case "piecewise":
                return PiecewiseSchedule(**args)
            case "ape_x":
                return PerEnvSchedule([ape_x_epsilon(index, count, **args) for index in indices])
            case "class":
                return _find_class(args["class"])(**args.get("args", {}))
    except TypeError as error:
        raise ValueError(f"schedule {dict(config)} does not fit its type {kind!r}: {error}") from error
    raise ValueError(f"schedule type {kind!r} is unknown; use constant, linear, cosine, piecewise or ape_x")


def read_schedule(option: str, given: float | ScheduleSettings, allowed: Any = NonNegative) -> Callable[[int], float]:
    """Read a schedule that a setting gives; it raises at a step at which its value is not finite and in range.

    Args:
        option: name of the setting.
        given: a number, points, or a mapping, as `schedule_from_config` takes them.
        allowed: range of the values, one of `surreal.base.ranges`.

    Raises:
        ValueError: it is not a schedule, or its first value, or that of a point, is out of range.
    """

    def check(value: float, step: int) -> float:
        if refusal(value, allowed) or not math.isfinite(value):
            raise ValueError(f"{option} is {value} at step {step}; it must be finite and {describe_range(allowed)}")
        return float(value)

    try:
        schedule = schedule_from_config(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{option} is {given!r}: {error}") from error
    if isinstance(schedule, PerEnvSchedule):
        raise ValueError(f"{option} has type ape_x, a value for each environment; it needs one")
    for step, value in schedule.points if isinstance(schedule, PiecewiseSchedule) else [(0, schedule(0))]:
        check(value, step)
    return lambda step: check(schedule(step), step)


def _find_class(path: str) -> type[Schedule]:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"schedule class {path} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Schedule)):
        raise ValueError(f"schedule class {path} is not a subclass of surreal.base.schedules.Schedule")
    return found
