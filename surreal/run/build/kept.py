"""What a run keeps of itself: the places of its checkpoints, and the rounds of its evaluation that score them.

No torch is imported here: the launcher looks at both.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from surreal.base.checkpoint.ranking import Round
from surreal.base.checkpoint.store import CheckpointStore
from surreal.base.system.files import parse_json
from surreal.config import Config
from surreal.config.schema.learning import RUN_STORE

logger = logging.getLogger(__name__)

CHECKPOINTS_NAME = "checkpoints"


def checkpoint_folders(config: Config, run_dir: Path, *, index: int = 0) -> tuple[str | None, list[str]]:
    """Where a run's checkpoints go: in its own folder, None if not there, and elsewhere.

    Args:
        config: of the run.
        run_dir: its folder, whose name tells it from other runs in the same place.
        index: of the parameter server, of several.
    """
    run_dir, name = run_dir.absolute(), f"{CHECKPOINTS_NAME}-{index}" if index else CHECKPOINTS_NAME
    own = str(run_dir / name) if RUN_STORE in config.checkpoint.stores else None
    others = [store for store in dict.fromkeys(config.checkpoint.stores) if store != RUN_STORE]
    return own, [f"{store.rstrip('/')}/{run_dir.name}/{name}" for store in others]


def checkpoint_places(config: Config, run_dir: Path) -> list[CheckpointStore]:
    """The places of a run's checkpoints, that in its own folder first."""
    own, others = checkpoint_folders(config, run_dir)
    return [CheckpointStore(folder) for folder in ([] if own is None else [own]) + others]


def scored_rounds(run_dir: Path) -> list[Round]:
    """The rounds of the evaluation in a run's folder that say how good a learner was, after how many updates, >= 1."""
    found = []
    for line in round_lines(run_dir / "eval" / "scores.jsonl", warns=False):
        values = line.get("time"), line.get("updates"), line.get("mean_return")
        if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            found.append(Round(float(line["time"]), int(line["updates"]), float(line["mean_return"])))
    return [each for each in found if each.updates > 0]


def round_lines(path: Path, *, warns: bool = True) -> list[dict[str, Any]]:
    """The lines of whole rounds in a file of scores.

    Args:
        path: of the file; without one there are none.
        warns: whether to say that a line was cut off, and passed over.
    """
    if not path.exists():
        return []
    found = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = parse_json(text)
        except ValueError:
            if warns:
                logger.warning("%s has a line that was cut off; it is passed over", path)
            continue
        if isinstance(line, dict) and line.get("kind") == "round":
            found.append(line)
    return found
