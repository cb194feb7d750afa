"""The best round of an evaluation, as its file says: for the evaluation itself, and for the result of the run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from surreal.base.system.files import parse_json

BEST_NAME = "best.json"


def read_best(folder: Path) -> dict[str, Any] | None:
    """The best round of an evaluation's folder, `eval` in that of its run; None if there is none."""
    try:
        data = parse_json((folder / BEST_NAME).read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and is_finite(data.get("mean_return")) else None


def is_finite(value: object) -> bool:
    """Whether a value out of a file is a finite number."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False
