"""Checks of the options of learners, by the name of each."""

from __future__ import annotations


def check_shares(**options: float) -> None:
    """Refuse numbers outside of [0, 1].

    Raises:
        ValueError: names the first, and its range.
    """
    for name, value in options.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value}; it must be in [0, 1]")


def check_not_negative(**options: float) -> None:
    """Refuse numbers below 0.

    Raises:
        ValueError: names the first, and its range.
    """
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"{name} is {value}; it must be >= 0")


def check_positive(**options: float | None) -> None:
    """Refuse numbers that are not above 0; None passes.

    Raises:
        ValueError: names the first, and its range.
    """
    for name, value in options.items():
        if value is not None and not value > 0.0:
            raise ValueError(f"{name} is {value}; it must be > 0")


def check_schedule(option: str, max_global_step: int | None, schedule_step: str) -> None:
    """Refuse a schedule without an end.

    Args:
        option: that asks for a schedule.
        max_global_step: where schedules end.
        schedule_step: what they count.

    Raises:
        ValueError: names the setting that gives them an end.
    """
    if max_global_step is None or max_global_step < 1:
        limit = "learner.max_updates" if schedule_step == "update" else "run.max_env_steps"
        raise ValueError(
            f"max_global_step is {max_global_step}; {option} needs it to be >= 1. Set it, or {limit},"
            " which it defaults to"
        )
