"""The page as it is first sent: the panes and controls of `layout.yaml`, and the list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dash import dcc, html

from surreal.config.yaml_tree import read_table
from surreal.plugins.dashboard.page.parts import Shown, duration, number, short_number
from surreal.plugins.recorded.curves import Axis
from surreal.plugins.recorded.files import LEVELS
from surreal.plugins.recorded.listing import ListedRun

#: Number of runs that are chosen when a page is opened.
FIRST_RUNS = 12
#: Maximum number of runs in the list.
MAX_LISTED = 200
#: Parts that the browser draws from data; see `wiring.py`.
TREES = ("settings", "run-facts", "sweeps", "logs")


def layout(runs: Mapping[str, ListedRun], metrics: Sequence[str], *, may_stop: bool) -> Shown:
    """Build the whole page, which shows some metrics first; `may_stop` if it was opened with the token."""
    tree = read_table(__package__, "layout.yaml")
    given = {
        "trees": [dcc.Store(f"{part}-tree") for part in TREES],
        "run_options": run_options(runs),
        "run_names": run_names(runs),
        "chosen": list(runs)[:FIRST_RUNS],
        "newest": next(iter(runs), None),
        "metrics": list(metrics),
        "axes": [{"value": str(axis), "label": axis.label} for axis in Axis],
        "levels": list(LEVELS),
        "may_stop": may_stop,
    }
    return _built(tree, given)


def _built(node: Any, given: Mapping[str, Any]) -> Any:
    """Make the component that a node of layout.yaml describes; `$NAME` stands for a given value."""
    if isinstance(node, str):
        return given[node[1:]] if node.startswith("$") else node
    if isinstance(node, list):
        children = [_built(child, given) for child in node]
        return [each for child in children for each in (child if isinstance(child, list) else [child])]
    ((kind, properties),) = node.items()
    values = {
        name: _built(value, given) if name == "children" or isinstance(value, str) else value
        for name, value in properties.items()
    }
    component = getattr(html, kind, None) or getattr(dcc, kind)
    return component(**values)


def run_options(runs: Mapping[str, ListedRun], contains: str = "") -> list[dict[str, Any]]:
    """List the runs to choose from: those that contain all words, at most the newest MAX_LISTED, by environment.

    An environment's name above its runs is an option that cannot be chosen. It is left out if it is the only one, and
    unknown.
    """
    words = contains.lower().split()
    found = {
        key: run
        for key, run in runs.items()
        if all(word in f"{run.label} {run.name} {run.environment} {run.status}".lower() for word in words)
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, run in islice(found.items(), MAX_LISTED):
        groups.setdefault(run.environment, []).append({"value": key, **_described(run)})
    for name, options in groups.items():
        if name or len(groups) > 1:
            label = html.Span(name or "environment unknown", className="listed-environment")
            options.insert(0, {"value": f"environment {name}", "label": label, "disabled": True})
    return [option for options in groups.values() for option in options]


def run_names(runs: Mapping[str, ListedRun]) -> list[dict[str, str]]:
    """List the runs to choose one from."""
    return [{"value": key, "label": run.label} for key, run in runs.items()]


def _described(run: ListedRun) -> dict[str, Any]:
    """Describe a run: its name in the first line, state and progress in the second; one part, because Dash is slow."""
    best = "" if run.best_return is None else f" · best {number(run.best_return)}"
    facts = f"{run.status} · {short_number(run.env_steps)} steps{best} · {duration(run.time_s, is_short=True)}"
    return {
        "label": html.Span(f"{run.label}\n{facts}", className=f"listed state-{run.status}"),
        "title": f"{run.status}: {run.reason}" if run.reason else run.status,
    }
