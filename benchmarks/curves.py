"""Curves of `make learn`: a small CSV for each run, and from these files a picture for each task.

    python -m benchmarks.curves     draw the pictures again

A row is a round of the evaluation: env steps, seconds since the run began, without pauses, and mean return.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.alone import Span, overlap_s
from benchmarks.references import REFERENCES
from surreal.config import load_config
from surreal.plugins.plot.drawing import Curve, write_picture
from surreal.plugins.plot.options import PlotOptions
from surreal.plugins.recorded.curves import Axis, Band, Line, group_band

FOLDER = Path(__file__).with_name("curves")
PICTURES = Path(__file__).parents[1] / "docs" / "images" / "curves"
_COLUMNS = ("env_steps", "seconds", "mean_return")
#: Rows of a file; more are thinned evenly, so that the repository stays small.
_MOST_ROWS = 200


class Point(NamedTuple):
    """A round of the evaluation."""

    env_steps: int
    seconds: float
    mean_return: float


def read_run(run_dir: Path, active: Sequence[Span]) -> list[Point]:
    """Read the rounds of a run's evaluation, oldest first; `active` has the times in which the run was not paused."""
    points = []
    for line in (run_dir / "eval" / "scores.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "round":
            seconds = overlap_s(active, 0.0, row["time"])
            points.append(Point(row["global_step"], round(seconds, 1), round(row["mean_return"], 3)))
    return points


def write_curve(points: Sequence[Point], preset: str, seed: int, folder: Path = FOLDER) -> Path:
    """Write a curve as CSV; return its path."""
    kept = np.unique(np.linspace(0, len(points) - 1, min(len(points), _MOST_ROWS)).round().astype(int))
    folder.mkdir(exist_ok=True)
    path = _path(folder, preset, seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(points[i] for i in kept)
    return path


def has_curve(preset: str, seed: int) -> bool:
    """Whether the curve of a run is there."""
    return _path(FOLDER, preset, seed).exists()


def _path(folder: Path, preset: str, seed: int) -> Path:
    return folder / f"{preset}-{seed}.csv"


def read_curves(folder: Path = FOLDER) -> dict[str, dict[int, list[Point]]]:
    """Read all curves: preset -> seed -> rows."""
    found: dict[str, dict[int, list[Point]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.csv")):
        preset, _, seed = path.stem.rpartition("-")
        with path.open(encoding="utf-8", newline="") as file:
            rows = [Point(int(row[0]), float(row[1]), float(row[2])) for row in list(csv.reader(file))[1:]]
        found[preset][int(seed)] = rows
    return found


def tasks(presets: Sequence[str]) -> dict[str, list[str]]:
    """Group presets by their environment: a file's name -> presets."""
    found: dict[str, list[str]] = defaultdict(list)
    for preset in presets:
        env_id = load_config(preset).env.id
        found[env_id.rpartition("/")[2].rpartition(":")[2].partition("-v")[0].lower()].append(preset)
    return dict(found)


def draw(task: str, curves: Mapping[str, Mapping[int, Sequence[Point]]], folder: Path = PICTURES) -> Path:
    """Draw the curves of a task's presets, with a band over the seeds, and each reference as a line."""
    drawn, most = [], 0
    for preset, seeds in curves.items():
        band = group_band([_line(rows) for rows in seeds.values()], [task] * len(seeds), np.random.default_rng(0))
        count = f"{len(seeds)} seeds" if len(seeds) > 1 else "1 seed"
        drawn.append(Curve(f"{preset} ({count})", band))
        most = max(most, *(rows[-1].env_steps for rows in seeds.values()))
    for value in sorted({REFERENCES[preset].mean_return for preset in curves if preset in REFERENCES}):
        flat = np.full(2, value)
        ends = np.array([0.0, most])
        nothing = np.full(2, np.nan)
        band = Band(ends, flat, nothing, nothing, np.ones(2, np.int64))
        drawn.append(Curve(f"reference {value:g}", band, is_reference=True))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task}.svg"
    write_picture({"mean return": drawn}, PlotOptions(axis=Axis.STEPS), path, title=task)
    return path


def _line(rows: Sequence[Point]) -> Line:
    """Make a line of the newest round at each number of env steps."""
    newest = dict(sorted((row.env_steps, row.mean_return) for row in rows))
    return Line(np.array([*newest], float), np.array([*newest.values()], float))


def draw_all() -> None:
    """Draw a picture for each task that has curves."""
    curves = read_curves()
    for task, presets in tasks([*curves]).items():
        draw(task, {preset: curves[preset] for preset in presets})


def pictures() -> list[Path]:
    """List the pictures."""
    return sorted(PICTURES.glob("*.svg"))


if __name__ == "__main__":
    draw_all()
