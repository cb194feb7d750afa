"""The callbacks of the page: the inputs of each part.

Dash takes seconds for parts of a thousand pieces, such as a table of settings. So large parts are sent to the page as
data (`...-tree`), and drawn by `draw` in assets/dashboard.js.

A part is built again when the user chooses something, or when the page asks for updates (`tick`) and the data differs
from what the page has seen. Only the open pane is built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from surreal.plugins.dashboard.page import curves, run, sweep
from surreal.plugins.dashboard.page import parts as panes
from surreal.plugins.dashboard.page.layout import TREES, run_names, run_options
from surreal.plugins.dashboard.page.parts import note
from surreal.plugins.dashboard.sources.runs import Runs, WatchedRun
from surreal.plugins.recorded.curves import Axis
from surreal.plugins.recorded.files import log_names, tail_logs

_LOG_LINES = 400


def wire(app: Dash, runs: Runs) -> None:
    """Add the callbacks."""
    _wire_browser(app)
    parts, add = _Parts(runs), partial(_add, app)
    add(
        parts.list_runs,
        "chosen.options run.options list-seen.data run-count.children problem.children updated.children",
        "tick.data filter.value chosen.value",
        "list-seen.data",
    )
    buttons = "choose-all.n_clicks choose-none.n_clicks"
    add(parts.choose, "chosen.value", buttons, "filter.value chosen.value", prevent_initial_call=True)
    add(
        parts.curves,
        "charts.children curves-note.children metrics.options curves-seen.data",
        "tick.data chosen.value metrics.value axis.value smoothing.value options.value theme.data",
        "curves-seen.data",
        pane="curves",
    )
    chosen = "chosen.value settings-filter.value only-different.value"
    add(parts.settings, "settings-tree.data", chosen, pane="settings")
    shown = "run-facts-tree.data run-charts.children run-profiles.children stop-area.hidden"
    add(parts.run, shown, "tick.data run.value theme.data", pane="run")
    add(parts.sweeps, "sweeps-tree.data sweep-charts.children", "tick.data theme.data", pane="sweeps")
    add(
        parts.logs,
        "logs-tree.data processes.options logs-seen.data",
        "tick.data run.value level.value processes.value log-filter.value",
        "logs-seen.data",
        pane="logs",
    )
    add(parts.videos, "videos.children videos-seen.data", "tick.data run.value", "videos-seen.data", pane="videos")


def _named(outputs: str, inputs: str, state: str = "") -> list[Any]:
    """Read the properties of components that a callback needs: `chosen.value theme.data`."""
    kinds: tuple[tuple[Any, str], ...] = ((Output, outputs), (Input, inputs), (State, state))
    return [kind(*name.split(".")) for kind, names in kinds for name in names.split()]


def _add(
    app: Dash, part: Callable[..., Any], outputs: str, inputs: str, state: str = "", *, pane: str = "", **options: Any
) -> None:
    """Make a function of the inputs and the state compute the outputs; one of a pane is called while it is open."""

    def of_pane(tab: str, *given: Any) -> Any:
        if tab != pane:
            raise PreventUpdate
        return part(*given)

    callback: Any = app.callback  # without types
    callback(*_named(outputs, f"tab.value {inputs}" if pane else inputs, state), **options)(of_pane if pane else part)


def _wire_browser(app: Dash) -> None:
    """Add the callbacks that run in the browser: `assets/dashboard.js`."""

    def by_itself(name: str, outputs: str, inputs: str, state: str = "", **options: Any) -> None:
        browser: Any = app.clientside_callback  # without types
        browser(ClientsideFunction("surreal", name), *_named(outputs, inputs, state), **options)

    by_itself("tick", "tick.data", "interval.n_intervals")
    by_itself("theme", "theme.data", "theme-button.n_clicks")
    by_itself("showPane", "main.className", "tab.value")
    for part in TREES:
        by_itself("draw", "", f"{part}-tree.data")
    asks = "stop.n_clicks stop-no.n_clicks stop-answer.children run.value"
    by_itself("ask", "stop-question.hidden", asks, prevent_initial_call=True)
    by_itself("stop", "stop-answer.children", "stop-yes.n_clicks", "run.value token.value", prevent_initial_call=True)


class _Parts:
    """The functions of the parts; the arguments of each are its inputs, then its state."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def list_runs(self, _: Any, contains: str | None, chosen: list[str] | None, seen: str | None) -> tuple[Any, ...]:
        listed = self._runs.listed()
        count = f"{len({*(chosen or ())} & {*listed})} of {len(listed)} shown"
        about = count, self._runs.problem(), time.strftime("as of %H:%M:%S")
        found = _signature(contains, listed)
        if found == seen:
            return no_update, no_update, no_update, *about
        return run_options(listed, contains or ""), run_names(listed), found, *about

    def choose(self, _: Any, __: Any, contains: str | None, chosen: list[str] | None) -> list[str]:
        options = run_options(self._runs.listed(), contains or "")
        found = [option["value"] for option in options if not option.get("disabled")]
        if ctx.triggered_id == "choose-all":
            return list(dict.fromkeys([*(chosen or ()), *found]))
        return [key for key in chosen or () if key not in found]

    def curves(
        self,
        _: Any,
        chosen: list[str] | None,
        metrics: list[str] | None,
        axis: str,
        smoothing: float,
        options: list[str],
        theme: str,
        seen: str | None,
    ) -> tuple[Any, ...]:
        loaded = [curves.Loaded(each, each.recorded()) for each in self._watched(chosen)]
        metrics = metrics or curves.first_metrics(loaded)
        view = curves.View(metrics, Axis(axis), float(smoothing or 0.0), "seeds" in options, "log" in options, theme)
        news = [(each.run.key, each.recorded.history.version, curves.problems([each])) for each in loaded]
        found = _signature(view, news)
        if found == seen and ctx.triggered_id == "tick":
            return (no_update,) * 4
        names = sorted({name for each in loaded for name in each.recorded.history.names()} | {*view.metrics})
        shown = curves.environments(loaded, view) if loaded else [note("Choose runs on the list to see their curves.")]
        return shown, curves.problems(loaded), names, found

    def settings(self, chosen: list[str] | None, contains: str | None, only_different: list[str]) -> Any:
        found = sorted(self._watched(chosen), key=lambda each: str(each.settings().get("env.id", "")))
        listed, settings = [each.listed for each in found], [each.settings() for each in found]
        return panes.settings_table(listed, settings, contains=contains or "", only_different=bool(only_different))

    def run(self, _: Any, key: str | None, theme: str) -> Any:
        watched = self._runs.watch(key) if key else None
        if watched is None:
            return note("Choose a run."), [], [], True
        live, recorded = watched.live(), watched.recorded()
        facts = [run.overview(watched.listed, live, recorded.history), run.processes(live), run.replay(live)]
        profiles = panes.profiles(watched.key, panes.find_profiles(watched.listed.folder))
        return facts, run.health_charts(recorded.history, theme), profiles, not watched.listed.is_alive

    def sweeps(self, _: Any, theme: str) -> Any:
        found = [(path, sweep.read_trials(path)) for path in sweep.find_sweeps(self._runs.listed().values())]
        if not found:
            return note("No run on the list is part of a sweep; surreal dashboard sweeps/NAME shows one."), []
        charts = [chart for each in found for chart in sweep.score_charts(*each, theme)]
        return [sweep.sweep_card(*each) for each in found], charts

    def logs(
        self, _: Any, key: str | None, level: str, processes: list[str] | None, contains: str | None, seen: str | None
    ) -> tuple[Any, ...]:
        watched = self._runs.watch(key) if key else None
        if watched is None or watched.listed.folder is None:
            return note("The logs of this run are in a folder elsewhere."), [], ""
        folder = watched.listed.folder
        records = tail_logs(folder, processes=processes or (), level=level, contains=contains or "", limit=_LOG_LINES)
        found = _signature(key, records)
        if found == seen:
            return (no_update,) * 3
        return panes.log_lines(records), log_names(folder), found

    def videos(self, _: Any, key: str | None, seen: str | None) -> tuple[Any, ...]:
        watched = self._runs.watch(key) if key else None
        folder = None if watched is None else watched.listed.folder
        videos = [] if folder is None else panes.find_videos(folder)
        found = _signature(key, [path.name for path in videos])
        return (no_update, no_update) if found == seen else (panes.videos(key or "", videos), found)

    def _watched(self, chosen: Sequence[str] | None) -> list[WatchedRun]:
        """List the chosen runs that still exist, oldest first, so that the older ones keep their colors."""
        found = [self._runs.watch(key) for key in reversed(list(self._runs.listed())) if key in (chosen or ())]
        return [each for each in found if each is not None]


def _signature(*what: Any) -> str:
    return sha256(repr(what).encode()).hexdigest()[:16]
