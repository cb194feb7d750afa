"""Measure two sides in alternating rounds, and report their ratio.

A machine may be throttled at any moment, so rounds of Surreal and of the peer alternate. Two ratios are reported: that
of the best rounds (what the code can do), and the median over adjacent pairs (what it did).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable


def alternate(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Measure both in turn; each returns a rate, of which more is better. The first pair is a warm-up."""
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
