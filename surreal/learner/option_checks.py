"""The length of schedules. The other checks are for copies of earlier learners, before arguments had ranges."""

from __future__ import annotations

from functools import partial
from typing import Any

from surreal.base.ranges import NonNegative, Positive, Share, refusal


def _check(annotation: Any, **options: float | None) -> None:
    for name, value in options.items():
        if must := refusal(value, annotation):
            raise ValueError(f"{name} is {value}; {must}")


check_shares = partial(_check, Share)
check_not_negative = partial(_check, NonNegative)
check_positive = partial(_check, Positive)


def check_schedule(option: str, max_global_step: int | None, schedule_step: str) -> int:
    """Return `max_global_step`, the length of a schedule; refuses one without end that `option` asks for."""
    if max_global_step is None or max_global_step < 1:
        limit = "learner.max_updates" if schedule_step == "update" else "run.max_env_steps"
        problem = f"max_global_step is {max_global_step}"
        raise ValueError(f"{problem}; {option} needs it to be >= 1. Set it, or {limit}, which it defaults to")
    return max_global_step
