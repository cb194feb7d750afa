"""Places of a run's checkpoints, and going back to an earlier one; evaluation's files, read without torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from surreal.base.checkpoint.store import CheckpointStore, Ranking, Round, step_of
from surreal.base.errors import CheckpointError
from surreal.base.system.files import older_path, parse_json
from surreal.config import Config
from surreal.config.schema.learning import RUN_STORE

logger = logging.getLogger(__name__)


CHECKPOINTS_NAME = "checkpoints"
BEST_NAME = "best.json"


def checkpoint_folders(config: Config, run_dir: Path, *, index: int = 0) -> tuple[str | None, list[str]]:
    """Return where a run's checkpoints go: the folder in the run's folder (None: not there), and other places."""
    run_dir, name = run_dir.absolute(), f"{CHECKPOINTS_NAME}-{index}" if index else CHECKPOINTS_NAME
    own = str(run_dir / name) if RUN_STORE in config.checkpoint.stores else None
    others = [store for store in dict.fromkeys(config.checkpoint.stores) if store != RUN_STORE]
    return own, [f"{store.rstrip('/')}/{run_dir.name}/{name}" for store in others]


def checkpoint_places(config: Config, run_dir: Path) -> list[CheckpointStore]:
    """The places of a run's checkpoints, that in its own folder first."""
    own, others = checkpoint_folders(config, run_dir)
    return [CheckpointStore(folder) for folder in ([] if own is None else [own]) + others]


def scored_rounds(run_dir: Path) -> list[Round]:
    """Read the rounds of evaluation in a run's folder, which score a learner after some number of updates, >= 1."""
    found = []
    for line in round_lines(run_dir / "eval" / "scores.jsonl", warns=False):
        values = line.get("time"), line.get("updates"), line.get("mean_return")
        if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            found.append(Round(float(line["time"]), int(line["updates"]), float(line["mean_return"])))
    return [each for each in found if each.updates > 0]


def round_lines(path: Path, *, warns: bool = True) -> Iterator[dict[str, Any]]:
    """Read the whole rounds in a file of scores, one by one, as it may be large; none if it does not exist."""
    for part in (older_path(path), path):
        with suppress(FileNotFoundError), part.open(errors="replace") as file:
            for text in file:
                if text.startswith('{"kind": "episode"') and text.endswith("}\n"):
                    continue
                try:
                    line = parse_json(text)
                except ValueError:
                    if warns:
                        logger.warning("%s has a line that was cut off; it is passed over", path)
                    continue
                if isinstance(line, dict) and line.get("kind") == "round":
                    yield line


#: In `checkpoint.restore`: of the run itself, and so nothing that a run without checkpoints could begin with.
OWN_CHECKPOINTS = ("latest", "best")


def earlier_checkpoint(config: Config, run_dir: Path) -> str | None:
    """The run's own file that `checkpoint.restore` names, else None; raises `CheckpointError` without it."""
    restore = config.checkpoint.restore
    if restore is None or restore == "latest":
        return None
    places = checkpoint_places(config, run_dir)
    if restore == "best":
        return Path(places[0].path_of(_best(places, run_dir))).name
    name = restore.rpartition("/")[2]
    if not name.removesuffix(".safetensors").isdigit() or not any(_is_in(restore, place) for place in places):
        return None
    if not any(name in place.names() for place in places):
        folders = " or ".join(place.folder for place in places)
        raise CheckpointError(f"{name} does not exist in {folders}, so the run cannot continue from there")
    return name


def go_back(config: Config, run_dir: Path) -> str:
    """Make the checkpoint that `checkpoint.restore` names the newest one, in all places; once for each resume.

    Returns what was done, for people, or "" without a name; raises `CheckpointError` if that is not possible.
    """
    name = earlier_checkpoint(config, run_dir)
    if name is None:
        return ""
    asides = [place.set_later_aside(step_of(name)) for place in checkpoint_places(config, run_dir)]
    found = " and ".join(filter(None, asides))
    return f"continuing from {name}" + (f"; later checkpoints are now in {found}" if found else "")


def _best(places: list[CheckpointStore], run_dir: Path) -> int:
    ranking, steps = Ranking(), {step for place in places for step in place.steps()}
    for place in places:
        ranking.merge(place.ranking())
    ranking.add(scored_rounds(run_dir), steps)
    best = ranking.best(steps, 1)
    if not best:
        folders = " or ".join(place.folder for place in places)
        raise CheckpointError(f"no checkpoint in {folders} has a score, so none is the best; name one")
    return best[0]


def _is_in(restore: str, place: CheckpointStore) -> bool:
    """Whether a file name, path or URL means a checkpoint in a place."""
    folder = restore.rpartition("/")[0]
    if not folder or "://" in restore or "://" in place.folder:
        return folder in ("", place.folder)
    return Path(folder).resolve() == Path(place.folder).resolve()


def read_best(folder: Path) -> dict[str, Any] | None:
    """Read the best round in an evaluation's folder, `eval` in that of its run; None if there is none."""
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
