"""The pane of sweeps: the trials of each sweep whose runs are listed, best first, and the score by each setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from dash import dcc, html

from surreal.base.system.files import parse_json
from surreal.base.values import LARGEST
from surreal.plugins.dashboard.page.curves import CONFIG, Stroke, figure
from surreal.plugins.dashboard.page.parts import NOTHING, Shown, badge, note, number, table
from surreal.plugins.recorded.listing import ListedRun
from surreal.run.process.run_folder import RUNS_FOLDER, tail

_TRIALS_NAME = "trials.jsonl"
#: How much of the end of a sweep's file is read, bytes.
_MAX_BYTES = 4 << 20
_MAX_ROWS = 200
#: A setting whose values differ by this factor has a logarithmic axis.
_WIDE = 30.0


class Trial(NamedTuple):
    """One choice of settings."""

    number: int
    settings: Mapping[str, Any]
    status: str = "running"
    score: float | None = None  #: None unless it finished
    scores: Sequence[float] = ()  #: of its runs, one for each seed
    reason: str = ""


def find_sweeps(runs: Iterable[ListedRun]) -> list[Path]:
    """List the folders of sweeps that contain some of the runs."""
    folders = [run.folder for run in runs if run.folder is not None]
    places = dict.fromkeys(path.parents[1] for path in folders if path.parent.name == RUNS_FOLDER.name)
    return [place for place in places if (place / _TRIALS_NAME).is_file()]


def read_trials(sweep: Path) -> list[Trial]:
    """Read the trials of a sweep in progress or over, best first; lines that make no sense are left out."""
    trials: dict[int, Trial] = {}
    for line in tail(sweep / _TRIALS_NAME, _MAX_BYTES):
        try:
            row = parse_json(line)
            if row["kind"] == "trial":
                trials[row["trial"]] = Trial(int(row["trial"]), dict(row["settings"]))
            elif row["kind"] == "end":
                score = None if row["score"] is None else float(row["score"])
                scores = [float(each) for each in row["scores"].values()]
                trial = trials[row["trial"]]
                trials[trial.number] = Trial(*trial[:2], str(row["status"]), score, scores, str(row["reason"]))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
    return sorted(trials.values(), key=lambda trial: (-_score(trial), trial.number))


def sweep_card(sweep: Path, trials: Sequence[Trial]) -> Shown:
    """Show a table of trials."""
    ended = sum(trial.status != "running" for trial in trials)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    rows = [
        (
            str(trial.number),
            html.Span(badge(trial.status), title=trial.reason),
            number(trial.score),
            f"{number(min(trial.scores))} to {number(max(trial.scores))}" if len(trial.scores) > 1 else NOTHING,
            *(_text(trial.settings.get(key)) for key in keys),
        )
        for trial in trials[:_MAX_ROWS]
    ]
    heads = ("trial", "state", "score", "over seeds", *keys)
    parts = [html.H2(sweep.name), note(f"{ended} of {len(trials)} trials so far have ended; the best is first.")]
    return html.Section([*parts, table(heads, rows, numeric=("trial", "score"))], className="card sweep")


def score_charts(sweep: Path, trials: Sequence[Trial], theme: str) -> list[Shown]:
    """Draw the score by each setting that varies."""
    scored = [trial for trial in trials if math.isfinite(_score(trial))]
    shown = []
    for key in dict.fromkeys(key for trial in scored for key in trial.settings):
        values: list[Any] = [trial.settings.get(key) for trial in scored]
        if len({*map(str, values)}) < 2:
            continue
        made = figure([], key, theme)
        numbers = [value for value in values if type(value) in (int, float) and abs(value) <= LARGEST]
        is_numeric = len(numbers) == len(values)
        if is_numeric and min(numbers) > 0 and max(numbers) / min(numbers) >= _WIDE:
            made["layout"]["xaxis"] |= {"type": "log", "dtick": "D2", "exponentformat": "e"}
        points = {
            "x": values if is_numeric else [escape(_text(value), quote=False) for value in values],
            "y": [trial.score for trial in scored],
            "text": [f"trial {trial.number}" for trial in scored],
        }
        marker = {"color": Stroke.of(0, theme).color, "size": 8}
        made["data"] = [{"type": "scatter", "mode": "markers", "name": "", "marker": marker, **points}]
        graph = dcc.Graph(figure=made, config=CONFIG, style={"height": "250px"})
        title: list[Shown] = [f"Score by {key.rpartition('.')[2]}", html.Span(sweep.name, className="dim")]
        shown.append(html.Section([html.H3(title), graph], className="card chart"))
    return shown


def _score(trial: Trial) -> float:
    return trial.score if trial.score is not None and math.isfinite(trial.score) else -math.inf


def _text(value: Any) -> str:
    return NOTHING if value is None else number(value) if isinstance(value, float) else str(value)
