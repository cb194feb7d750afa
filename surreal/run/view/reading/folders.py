"""The runs that a person names: `runs/demo`, `demo`, `runs/cartpole-*`, `runs`."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Sequence
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.run.process.finding import named_folder
from surreal.run.process.run_folder import RUNS_FOLDER
from surreal.run.view.listing import ListedRun, list_runs


def find_runs(names: Sequence[str], runs: Path = RUNS_FOLDER) -> list[ListedRun]:
    """Find the runs that are meant, each once.

    Args:
        names: each the folder of a run, one of many runs, a pattern of folders, or a run's name or id.
        runs: where runs are by default.

    Raises:
        ConfigError: a name means no run.
    """
    found: dict[Path | None, ListedRun] = {}
    for name in names:
        below = list_runs(_folders_of(name, runs))
        if not below:
            raise ConfigError(f"{name} is no run{_nearest(name, runs)}", key="RUN")
        found.update((run.folder, run) for run in below)
    return list(found.values())


def _folders_of(name: str, runs: Path) -> list[Path]:
    places = (Path(name).expanduser(), runs / name)
    for path in places:
        if path.is_dir():
            return [path]
    if (folder := named_folder(name, runs)) is not None:
        return [folder.path]
    for path in places:
        matches = [Path(match) for match in sorted(glob.glob(str(path))) if Path(match).is_dir()]
        if matches:
            return matches
    return []


def _nearest(name: str, runs: Path) -> str:
    known = [run.label for run in list_runs([runs])]
    near = difflib.get_close_matches(Path(name).name, known, 1, 0.4)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; {runs} has {', '.join(known[-3:])}" if known else f", and there is none in {runs.absolute()}"
