"""Alternating rounds, so that both sides of a ratio see the same machine, and the report of them.

A machine may be throttled at any moment: one round of ours, one of theirs, again and again; the ratio is taken of the
best rounds (what the code can do) and as the median over neighbouring pairs (what it did).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable


def alternate(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Measure both in turn (each returns a rate: more is better), the first pair being a warm-up."""
    pairs = [(ours(), theirs()) for _ in range(rounds + 1)][1:]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def report(name: str, unit: str, ours: list[float], theirs: list[float], *, aim: float | None, **more: object) -> None:
    """Print one JSON object: medians, the ratio of the best rounds and the median ratio of the pairs."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    line = {
        "name": name,
        "value": round(statistics.median(ours), 1),
        "unit": unit,
        "baseline": round(statistics.median(theirs), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_best": round(max(ours) / max(theirs), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "aim": aim,
        "rounds": len(ours),
        **more,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
