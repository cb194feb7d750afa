"""Checks of what a run has learned, by the files in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from surreal.config import Config
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.run import faults
from surreal.plugins.recorded.files import RunHistory
from surreal.run.build.checkpoints import is_finite, read_best, round_lines

#: A policy has collapsed if it has lost more than this share of its gain over the first round.
_COLLAPSE = 0.5
#: Rounds before which returns may still be those of the first policies.
_LEAST_ROUNDS = 9
#: Change of the weights' length, as a share of it, below which they have hardly changed.
_UNMOVED = 1e-4


def scores(folder: Path, config: Config, *, is_over: bool = True) -> Iterator[Finding]:
    """Compare the rounds of the evaluation with each other and with the goal."""
    rounds = [line["mean_return"] for line in round_lines(folder / "eval" / "scores.jsonl", warns=False)
              if is_finite(line.get("mean_return"))]  # fmt: skip
    best = (read_best(folder / "eval") or {}).get("mean_return")
    if not rounds or best is None:
        yield ok("no round of evaluation was played")
        return
    goal, last = config.run.stop_at_return, rounds[-1]
    is_reached = goal is not None and best >= goal
    if goal is not None and not is_reached and is_over:
        yield faults.UNREACHED.found(f"the best return is {best:.1f}; run.stop_at_return is {goal:g}")
    if len(rounds) >= _LEAST_ROUNDS and not is_reached and (still := _standstill(rounds)):
        yield (faults.CONSTANT if min(rounds) == max(rounds) else faults.STUCK).found(still)
        yield from _weights(folder)
    elif best > rounds[0] and best - last > _COLLAPSE * (best - rounds[0]):
        yield faults.COLLAPSED.found(
            f"the last return is {last:.1f}, the best was {best:.1f}, the first {rounds[0]:.1f}"
        )
    else:
        yield ok(f"returns were {rounds[0]:.1f} first, {best:.1f} at best and {last:.1f} last")


def _standstill(rounds: Sequence[float]) -> str:
    """Describe rounds of which neither the second nor the last third is better than the first; "" if one is."""
    thirds = np.array_split(np.asarray(rounds), 3)
    first, second, last = (float(np.mean(third)) for third in thirds)
    if max(second, last) - first > float(np.median([np.std(third) for third in thirds])):
        return ""
    if min(rounds) == max(rounds):
        return f"all {len(rounds)} rounds of evaluation returned {last:.4g}"
    return f"the first third of {len(rounds)} rounds returned {first:.1f}, the last third {last:.1f}"


def _weights(folder: Path) -> Iterator[Finding]:
    history = RunHistory(folder)
    history.update()
    for process, rows in history.curves("learner/weight_norm").items():
        lengths = rows.value
        if len(lengths) > 1 and np.ptp(lengths) < _UNMOVED * np.mean(lengths):
            yield faults.UNMOVED.found(f"learner/weight_norm of the {process} stayed at {lengths[-1]:.6g}")
