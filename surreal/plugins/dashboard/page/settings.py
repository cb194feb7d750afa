"""The pane of settings: those of the chosen runs side by side, what differs first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from surreal.plugins.dashboard.page.parts import NOTHING, Shown, badge, duration, note, number
from surreal.plugins.recorded.settings import SettingRow, compare_settings
from surreal.run.view.listing import ListedRun

#: More columns nobody can read.
MAX_COLUMNS = 12


def settings_table(
    runs: Sequence[ListedRun],
    settings: Sequence[Mapping[str, Any]],
    *,
    contains: str = "",
    only_different: bool = False,
) -> Shown:
    """The settings of runs, below what each of them has reached.

    Args:
        runs: to compare.
        settings: settings of each run.
        contains: text that must be in a setting's name, in any case.
        only_different: leave out what all agree on.
    """
    if not runs:
        return note("Choose runs to see their settings.")
    left_out = len(runs) - MAX_COLUMNS
    runs, settings = runs[:MAX_COLUMNS], settings[:MAX_COLUMNS]
    rows = [row for row in compare_settings(settings) if contains.lower() in row.key.lower()]
    different, same = [row for row in rows if row.differs], [row for row in rows if not row.differs]
    body = [*_results(runs), *_section("differs", different, len(runs))]
    if not only_different:
        body += _section("the same in all" if len(runs) > 1 else "settings", same, len(runs))
    head = html.Tr([html.Th("run"), *(html.Th(run.label) for run in runs)])
    shown: list[Shown] = [
        html.Div(html.Table([html.Thead(head), html.Tbody(body)], className="settings"), className="scroll-x")
    ]
    if not different and len(runs) > 1:
        shown.insert(0, note("These runs have the same settings."))
    if left_out > 0:
        shown.append(note(f"{left_out} more runs are chosen than fit beside each other."))
    return html.Div(shown, className="card")


def _plain(value: str | None) -> str:
    """A value as a person would write it: text without the quotes that JSON has."""
    if value is None:
        return NOTHING
    return json.loads(value) if value.startswith('"') else value


def _results(runs: Sequence[ListedRun]) -> list[Shown]:
    rows = {
        "state": [badge(run.status) for run in runs],
        "best return": [number(run.best_return) for run in runs],
        "env steps": [number(run.env_steps) for run in runs],
        "updates": [number(run.updates) for run in runs],
        "time": [duration(run.time_s) for run in runs],
    }
    return [html.Tr([html.Td(name, className="key"), *map(html.Td, cells)]) for name, cells in rows.items()]


def _section(title: str, rows: Sequence[SettingRow], columns: int) -> list[Shown]:
    if not rows:
        return []
    head = html.Tr(html.Th(f"{title} ({len(rows)})", colSpan=columns + 1, className="section"))
    return [
        head,
        *(
            html.Tr(
                [
                    html.Td(row.key, className="key"),
                    *(html.Td(_plain(value), className="value") for value in row.values),
                ],
                className="differs" if row.differs else "",
            )
            for row in rows
        ),
    ]
