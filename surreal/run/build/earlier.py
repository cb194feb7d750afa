"""Going on from an earlier checkpoint of a run: the later ones are set aside, and so it is the newest.

No torch is imported here: the launcher does it.
"""

from __future__ import annotations

from pathlib import Path

from surreal.base.checkpoint.ranking import Ranking
from surreal.base.checkpoint.store import CheckpointStore, step_of
from surreal.base.errors import CheckpointError
from surreal.config import Config
from surreal.run.build.kept import checkpoint_places, scored_rounds

#: In `checkpoint.restore`: of the run itself, and so nothing that a run without checkpoints could begin with.
OWN_WORDS = ("latest", "best")


def earlier_checkpoint(config: Config, run_dir: Path) -> str | None:
    """The checkpoint of the run that `checkpoint.restore` names: by its file name, by its path or URL, or as `best`.

    Args:
        config: of the run.
        run_dir: its folder.

    Returns:
        The file name; None if the setting names none, or a file elsewhere.

    Raises:
        CheckpointError: there is no such checkpoint, or a place that may hold it cannot be listed.
    """
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
        raise CheckpointError(f"{name} does not exist in {folders}, so the run cannot go on from there")
    return name


def go_back(config: Config, run_dir: Path) -> str:
    """Make the checkpoint that `checkpoint.restore` names the newest one, in all places; once for each resume.

    Args:
        config: of the run that is resumed.
        run_dir: its folder.

    Returns:
        What was done, for people; "" if none of the run's is named.

    Raises:
        CheckpointError: it is not there, or the later ones cannot be moved.
    """
    name = earlier_checkpoint(config, run_dir)
    if name is None:
        return ""
    asides = [place.set_later_aside(step_of(name)) for place in checkpoint_places(config, run_dir)]
    found = " and ".join(filter(None, asides))
    return f"going on from {name}" + (f"; later checkpoints are now in {found}" if found else "")


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
