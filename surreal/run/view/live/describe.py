"""A run in words: its phase, its numbers, and what its processes wait for."""

from __future__ import annotations

from collections.abc import Sequence

from surreal.run.process.roles import LEARNER
from surreal.run.view.run_view import RunView


def starting_phase(view: RunView) -> str:
    """Name the phase of a run before its first update; "" after that."""
    if view.updates:
        return ""
    learner = next((beat for beat in view.alive if beat.role == LEARNER.counts_as), None)
    if learner is None:
        return "waiting for the learner to start"
    return learner.waits_for[0] if learner.waits_for else "waiting for the first update"


def describe_numbers(view: RunView, elapsed_s: float, *, is_over: bool = False) -> list[tuple[str, str]]:
    """Return names and values to show, in order; "-" if there is no value yet, no rates when the run is over."""
    rating = f"{view.rating:.0f}" if view.rating is not None else ""
    against = f" ({view.past_versions} past versions, {view.rated_games:,} games)"
    return [
        ("time", f"{elapsed_s:.0f} s"),
        ("env steps", _count(view.env_steps, None if is_over else view.steps_per_s)),
        ("updates", _count(view.updates, None if is_over else view.updates_per_s)),
        *([("skipped updates", f"{view.skipped_updates:,}")] if view.skipped_updates else []),
        ("return", _number(view.episode_return, ".1f")),
        ("best return", _number(view.best_return, ".1f")) if is_over else ("eval return", _evaluation(view)),
        ("replay", _number(view.replay_fill, ".0%")),
        ("samples/insert", _number(view.samples_per_insert, ".2f")),
        ("policy lag", _number(view.policy_lag, ".0f")),
        ("version", str(view.version) if view.version else "-"),
        *([("rating", rating + against)] if rating else []),
    ]


def describe_troubles(view: RunView, *, without: str = "") -> list[tuple[str, str]]:
    """List what hangs and what is waited for, except `without`: ("waiting", "agent-0, agent-1: waiting for credit")."""
    said: dict[tuple[str, str], list[str]] = {}
    for beat in view.alive:
        if beat.hangs_in:
            said.setdefault(("hanging", beat.hangs_in), []).append(beat.name)
        for text in beat.waits_for:
            if text != without:
                said.setdefault(("waiting", text), []).append(beat.name)
    return [(kind, f"{_names(names)}: {text}") for (kind, text), names in said.items()]


def describe_drain(waiting: Sequence[tuple[str, str]], *, can_hurry: bool = False) -> str:
    """Name the processes that the end of a run waits for, and the last work of each.

    Args:
        waiting: names of processes, and their last work.
        can_hurry: mention that another Ctrl-C shortens it.
    """
    works: dict[str, list[str]] = {}
    for name, work in waiting:
        works.setdefault(work, []).append(name)
    hint = " (Ctrl-C again ends it faster)" if can_hurry else ""
    return "draining: " + "; ".join(f"{_names(names)}: {work}" for work, names in works.items()) + hint


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


def _evaluation(view: RunView) -> str:
    best = "" if view.best_return is None else f" (best {view.best_return:.1f})"
    played, wanted = view.eval_progress
    under_way = f", {played} of {wanted} episodes played" if played < wanted else ""
    return _number(view.eval_return, ".1f") + best + under_way


def _count(count: int, per_s: float | None) -> str:
    rate = "" if per_s is None else f" ({per_s:,.0f}/s)"
    return f"{count:,}{rate}" if count else "-"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
