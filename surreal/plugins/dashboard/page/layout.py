"""The page as it is first sent: its panes and controls, without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from dash import dcc, html

from surreal.plugins.dashboard.page.parts import Shown, duration, number, short_number
from surreal.plugins.recorded.curves import Axis
from surreal.plugins.recorded.files import LEVELS
from surreal.plugins.recorded.listing import ListedRun, Status

#: Interval between the requests of an open page, ms.
INTERVAL_MS = 3000
#: Number of runs that are chosen when a page is opened.
FIRST_RUNS = 12
#: Maximum number of runs in the list.
MAX_LISTED = 200
_SIGNS: dict[Status, str] = {
    "running": "▶",
    "finished": "✓",
    "interrupted": "■",
    "failed": "✗",
    "killed": "✗",
    "over": "○",
    "unreadable": "?",
}
#: Parts that the browser draws from data; see `wiring.py`.
TREES = ("settings", "run-facts", "logs")
TABS = {"curves": "Curves", "settings": "Settings", "run": "Run", "logs": "Logs", "videos": "Videos"}


def layout(runs: Mapping[str, ListedRun], metrics: Sequence[str], *, may_stop: bool) -> Shown:
    """Build the whole page.

    Args:
        runs: runs by their keys, newest first.
        metrics: metrics to show at first.
        may_stop: whether the page was opened with the token.
    """
    chosen = list(runs)[:FIRST_RUNS]
    return html.Div(
        [
            dcc.Interval("interval", interval=INTERVAL_MS),
            dcc.Store("tick"),
            dcc.Store("theme", data="light"),
            *(dcc.Store(f"{part}-tree") for part in TREES),
            *(dcc.Store(f"{part}-seen") for part in ("list", "curves", "logs", "videos")),
            _header(),
            html.Div([_sidebar(runs, chosen), _main(runs, metrics, may_stop=may_stop)], className="body"),
        ],
        className="app",
    )


def run_options(runs: Mapping[str, ListedRun], contains: str = "") -> list[dict[str, str]]:
    """List the runs to choose from: those that contain all words, at most the newest MAX_LISTED."""
    words = contains.lower().split()
    found = {
        key: run
        for key, run in runs.items()
        if all(word in f"{run.label} {run.name} {run.status}".lower() for word in words)
    }
    return [{"value": key, **_described(run)} for key, run in islice(found.items(), MAX_LISTED)]


def run_names(runs: Mapping[str, ListedRun]) -> list[dict[str, str]]:
    """List the runs to choose one from."""
    return [{"value": key, "label": run.label} for key, run in runs.items()]


def _described(run: ListedRun) -> dict[str, str]:
    """Describe a run: name and state in the first line, progress in the second; as text, which Dash lists quickly."""
    best = "" if run.best_return is None else f" · best {number(run.best_return)}"
    facts = f"{short_number(run.env_steps)} steps{best} · {duration(run.time_s, is_short=True)}"
    return {
        "label": f"{_SIGNS[run.status]} {run.label}\n{facts}",
        "title": f"{run.status}: {run.reason}" if run.reason else run.status,
    }


def _header() -> Shown:
    return html.Header(
        [
            html.Span("Surreal", className="brand"),
            html.Span("dashboard", className="dim"),
            html.Span(id="problem", className="trouble"),
            html.Span(id="updated", className="dim push"),
            html.Button("◐", id="theme-button", title="light or dark", className="icon-button"),
        ]
    )


def _sidebar(runs: Mapping[str, ListedRun], chosen: Sequence[str]) -> Shown:
    return html.Details(
        [
            html.Summary([html.Span("Runs"), html.Span(id="run-count", className="dim")]),
            dcc.Input(id="filter", type="search", placeholder="filter by name or state", debounce=False, value=""),
            html.Div(
                [html.Button("all", id="choose-all"), html.Button("none", id="choose-none")], className="small-buttons"
            ),
            dcc.Checklist(id="chosen", options=run_options(runs), value=list(chosen), className="runs"),
        ],
        open=True,
        className="sidebar",
    )


def _main(runs: Mapping[str, ListedRun], metrics: Sequence[str], *, may_stop: bool) -> Shown:
    tabs = dcc.Tabs([dcc.Tab(label=name, value=tab) for tab, name in TABS.items()], value="curves", id="tab")
    one_run = html.Div(
        [
            html.Label("run", htmlFor="run"),
            dcc.Dropdown(id="run", options=run_names(runs), value=next(iter(runs), None), clearable=False),
        ],
        className="controls one-run",
    )
    curves = [
        html.Div(id="legend"),
        html.P(id="curves-note", className="note"),
        html.Div(id="charts", className="charts"),
    ]
    panes = {
        "curves": [_curve_controls(metrics), *curves],
        "settings": [_settings_controls(), html.Div(id="settings")],
        "run": [
            _stop_controls(may_stop=may_stop),
            html.Div(id="run-facts"),
            html.Div(id="run-charts", className="charts"),
        ],
        "logs": [_log_controls(), html.Div(id="logs")],
        "videos": [html.Div(id="videos")],
    }
    shown = [html.Div(parts, className=f"pane pane-{name}") for name, parts in panes.items()]
    return html.Main([tabs, one_run, *shown], id="main", className="show-curves")


def _curve_controls(metrics: Sequence[str]) -> Shown:
    chosen = dcc.Dropdown(
        id="metrics", options=list(metrics), value=list(metrics), multi=True, placeholder="the usual ones"
    )
    along = dcc.RadioItems(id="axis", options=_choices({axis: axis.label for axis in Axis}), value="steps", inline=True)
    marks = {0: "0", 0.5: "0.5", 0.9: "0.9", 0.99: ""}
    smoothing = dcc.Slider(
        id="smoothing", min=0, max=0.99, step=0.01, value=0, marks=marks, updatemode="mouseup", allow_direct_input=False
    )
    shown = _choices({"seeds": "seeds as bands", "log": "log scale"})
    parts = [
        _control("metrics", chosen, kind="wide"),
        _control("along", along),
        _control("smoothing", smoothing),
        _control("show", dcc.Checklist(id="options", options=shown, value=["seeds"], inline=True)),
    ]
    return html.Div(parts, className="controls card")


def _settings_controls() -> Shown:
    shown = _choices({"yes": "only what differs"})
    parts = [
        _control("name", dcc.Input(id="settings-filter", type="search", placeholder="contains", value="")),
        _control("show", dcc.Checklist(id="only-different", options=shown, value=[])),
    ]
    return html.Div(parts, className="controls card")


def _log_controls() -> Shown:
    processes = dcc.Dropdown(id="processes", options=[], multi=True, placeholder="all")
    parts = [
        _control("level", dcc.Dropdown(id="level", options=list(LEVELS), value="INFO", clearable=False)),
        _control("processes", processes),
        _control("text", dcc.Input(id="log-filter", type="search", placeholder="contains", value="")),
    ]
    return html.Div(parts, className="controls card")


def _stop_controls(*, may_stop: bool) -> Shown:
    """Build the button and its question, which also asks for the token if the page was opened without it."""
    token = dcc.Input(id="token", type="password", placeholder="token", autoComplete="off")
    needs = html.Label(["It needs the token that ", html.Code("surreal dashboard"), " printed. ", token])
    return html.Div(
        [
            html.Button("Stop this run", id="stop", className="danger"),
            html.Div(
                [
                    html.P("Stop this run? All its processes drain, and write their last checkpoint."),
                    html.Div(needs, hidden=may_stop),
                    html.Div(
                        [
                            html.Button("Stop it", id="stop-yes", className="danger"),
                            html.Button("Cancel", id="stop-no"),
                        ],
                        className="small-buttons",
                    ),
                ],
                id="stop-question",
                hidden=True,
                className="card question",
            ),
            html.P(id="stop-answer", className="note"),
        ],
        id="stop-area",
        hidden=True,
        className="stop",
    )


def _choices(labels: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in labels.items()]


def _control(name: str, part: Shown, kind: str = "") -> Shown:
    return html.Div([html.Div(name, className="dim control-name"), part], className=f"control {kind}".strip())
