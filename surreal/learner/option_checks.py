"""Checks of schedules' settings. The other checks are for copies of earlier learners, before arguments had ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from surreal.base.ranges import NonNegative, Positive, Share, refusal
from surreal.base.schedules import PerEnvSchedule, PiecewiseSchedule, schedule_from_config


def _check(annotation: Any, **options: float | None) -> None:
    for name, value in options.items():
        if must := refusal(value, annotation):
            raise ValueError(f"{name} is {value}; {must}")


check_shares = partial(_check, Share)
check_not_negative = partial(_check, NonNegative)
check_positive = partial(_check, Positive)


def check_schedule(option: str, max_global_step: int | None, schedule_step: str) -> int:
    """Return `max_global_step`, the length of a schedule.

    Raises:
        ValueError: the schedule that `option` asks for has no end; names the setting that gives it one.
    """
    if max_global_step is None or max_global_step < 1:
        limit = "learner.max_updates" if schedule_step == "update" else "run.max_env_steps"
        raise ValueError(
            f"max_global_step is {max_global_step}; {option} needs it to be >= 1. Set it, or {limit},"
            " which it defaults to"
        )
    return max_global_step


def read_factors(given: float | Sequence[tuple[int, float]] | Mapping[str, Any]) -> Callable[[int], float]:
    """Read the schedule that learning rates are multiplied by; it raises for a factor that is not finite and >= 0.

    Raises:
        ValueError: it is not a schedule, or a point of it is not a step and a factor.
    """

    def check(factor: float, step: int) -> float:
        if not 0.0 <= factor < math.inf:
            raise ValueError(f"learning_rate_factor is {factor} at step {step}; it must be finite and >= 0")
        return float(factor)

    try:
        schedule = schedule_from_config(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"learning_rate_factor is {given!r}: {error}") from error
    if isinstance(schedule, PerEnvSchedule):
        raise ValueError("learning_rate_factor has type ape_x, a value for each environment; an update needs one")
    for step, factor in schedule.points if isinstance(schedule, PiecewiseSchedule) else [(0, schedule(0))]:
        check(factor, step)
    return lambda step: check(schedule(step), step)
