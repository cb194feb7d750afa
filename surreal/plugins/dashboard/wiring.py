"""The callbacks of the page: the inputs of each part.

Dash takes seconds for parts of a thousand pieces, such as a table of settings. So large parts are sent to the page as
data (`...-tree`), and drawn by `draw` in assets/dashboard.js.

A part is built again when the user chooses something, or when the page asks for updates (`tick`) and the data differs
from what the page has seen. Only the open pane is built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, TypeVar

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
F = TypeVar("F", bound=Callable[..., Any])


def wire(app: Dash, runs: Runs) -> None:
    """Add the callbacks."""
    _wire_browser(app)
    _wire_list(app, runs)
    _wire_curves(app, runs)
    _wire_settings(app, runs)
    _wire_run(app, runs)
    _wire_sweeps(app, runs)
    _wire_logs(app, runs)
    _wire_videos(app, runs)


def _named(outputs: str, inputs: str, state: str = "") -> list[Any]:
    """Read the properties of components that a callback needs: `chosen.value theme.data`."""
    kinds: tuple[tuple[Any, str], ...] = ((Output, outputs), (Input, inputs), (State, state))
    return [kind(*name.split(".")) for kind, names in kinds for name in names.split()]


def _callback(app: Dash, outputs: str, inputs: str, state: str = "", **options: Any) -> Callable[[F], F]:
    """Make a function of the inputs and the state compute the outputs."""
    callback: Any = app.callback  # without types
    wired: Callable[[F], F] = callback(*_named(outputs, inputs, state), **options)
    return wired


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


def _wire_list(app: Dash, runs: Runs) -> None:
    @_callback(
        app,
        "chosen.options run.options list-seen.data run-count.children problem.children updated.children",
        "tick.data filter.value chosen.value",
        "list-seen.data",
    )
    def list_runs(_: Any, contains: str | None, chosen: list[str] | None, seen: str | None) -> tuple[Any, ...]:
        listed = runs.listed()
        count = f"{len({*(chosen or ())} & {*listed})} of {len(listed)} shown"
        about = count, runs.problem(), time.strftime("as of %H:%M:%S")
        found = _signature(contains, listed)
        if found == seen:
            return no_update, no_update, no_update, *about
        return run_options(listed, contains or ""), run_names(listed), found, *about

    @_callback(
        app,
        "chosen.value",
        "choose-all.n_clicks choose-none.n_clicks",
        "filter.value chosen.value",
        prevent_initial_call=True,
    )
    def choose(_: Any, __: Any, contains: str | None, chosen: list[str] | None) -> list[str]:
        options = run_options(runs.listed(), contains or "")
        found = [option["value"] for option in options if not option.get("disabled")]
        if ctx.triggered_id == "choose-all":
            return list(dict.fromkeys([*(chosen or ()), *found]))
        return [key for key in chosen or () if key not in found]


def _wire_curves(app: Dash, runs: Runs) -> None:
    @_callback(
        app,
        "charts.children curves-note.children metrics.options curves-seen.data",
        "tick.data chosen.value metrics.value axis.value smoothing.value options.value theme.data tab.value",
        "curves-seen.data",
    )
    def draw(
        _: Any,
        chosen: list[str] | None,
        metrics: list[str] | None,
        axis: str,
        smoothing: float,
        options: list[str],
        theme: str,
        tab: str,
        seen: str | None,
    ) -> tuple[Any, ...]:
        if tab != "curves":
            raise PreventUpdate
        loaded = [curves.Loaded(each, each.recorded()) for each in _watched(runs, chosen)]
        view = curves.View(
            metrics or curves.first_metrics(loaded),
            Axis(axis),
            float(smoothing or 0.0),
            "seeds" in options,
            "log" in options,
            theme,
        )
        news = [(each.run.key, each.recorded.history.version, curves.problems([each])) for each in loaded]
        found = _signature(view, news)
        if found == seen and ctx.triggered_id == "tick":
            return (no_update,) * 4
        names = sorted({name for each in loaded for name in each.recorded.history.names()} | {*view.metrics})
        shown = curves.environments(loaded, view) if loaded else [note("Choose runs on the list to see their curves.")]
        return shown, curves.problems(loaded), names, found


def _wire_settings(app: Dash, runs: Runs) -> None:
    @_callback(app, "settings-tree.data", "chosen.value settings-filter.value only-different.value tab.value")
    def compare(chosen: list[str] | None, contains: str | None, only_different: list[str], tab: str) -> Any:
        if tab != "settings":
            raise PreventUpdate
        found = sorted(_watched(runs, chosen), key=lambda each: str(each.settings().get("env.id", "")))
        return panes.settings_table(
            [each.listed for each in found],
            [each.settings() for each in found],
            contains=contains or "",
            only_different=bool(only_different),
        )


def _wire_run(app: Dash, runs: Runs) -> None:
    @_callback(
        app,
        "run-facts-tree.data run-charts.children run-profiles.children stop-area.hidden",
        "tick.data run.value theme.data tab.value",
    )
    def show_run(_: Any, key: str | None, theme: str, tab: str) -> Any:
        if tab != "run":
            raise PreventUpdate
        watched = runs.watch(key) if key else None
        if watched is None:
            return note("Choose a run."), [], [], True
        live, recorded = watched.live(), watched.recorded()
        facts = [
            run.overview(watched.listed, live, recorded.history),
            run.processes(live),
            run.replay(live),
        ]
        profiles = panes.profiles(watched.key, panes.find_profiles(watched.listed.folder))
        return facts, run.health_charts(recorded.history, theme), profiles, not watched.listed.is_alive


def _wire_sweeps(app: Dash, runs: Runs) -> None:
    @_callback(app, "sweeps-tree.data sweep-charts.children", "tick.data theme.data tab.value")
    def show_sweeps(_: Any, theme: str, tab: str) -> Any:
        if tab != "sweeps":
            raise PreventUpdate
        found = [(path, sweep.read_trials(path)) for path in sweep.find_sweeps(runs.listed().values())]
        if not found:
            return note("No run on the list is part of a sweep; surreal dashboard sweeps/NAME shows one."), []
        charts = [chart for each in found for chart in sweep.score_charts(*each, theme)]
        return [sweep.sweep_card(*each) for each in found], charts


def _wire_logs(app: Dash, runs: Runs) -> None:
    @_callback(
        app,
        "logs-tree.data processes.options logs-seen.data",
        "tick.data run.value level.value processes.value log-filter.value tab.value",
        "logs-seen.data",
    )
    def show_logs(
        _: Any,
        key: str | None,
        level: str,
        processes: list[str] | None,
        contains: str | None,
        tab: str,
        seen: str | None,
    ) -> tuple[Any, ...]:
        if tab != "logs":
            raise PreventUpdate
        watched = runs.watch(key) if key else None
        if watched is None or watched.listed.folder is None:
            return note("The logs of this run are in a folder elsewhere."), [], ""
        folder = watched.listed.folder
        records = tail_logs(folder, processes=processes or (), level=level, contains=contains or "", limit=_LOG_LINES)
        found = _signature(key, records)
        if found == seen:
            return (no_update,) * 3
        return panes.log_lines(records), log_names(folder), found


def _wire_videos(app: Dash, runs: Runs) -> None:
    @_callback(app, "videos.children videos-seen.data", "tick.data run.value tab.value", "videos-seen.data")
    def show_videos(_: Any, key: str | None, tab: str, seen: str | None) -> tuple[Any, ...]:
        if tab != "videos":
            raise PreventUpdate
        watched = runs.watch(key) if key else None
        folder = None if watched is None else watched.listed.folder
        videos = [] if folder is None else panes.find_videos(folder)
        found = _signature(key, [path.name for path in videos])
        return (no_update, no_update) if found == seen else (panes.videos(key or "", videos), found)


def _watched(runs: Runs, chosen: Sequence[str] | None) -> list[WatchedRun]:
    """List the chosen runs that still exist, oldest first, so that the older ones keep their colors."""
    found = [runs.watch(key) for key in reversed(list(runs.listed())) if key in (chosen or ())]
    return [each for each in found if each is not None]


def _signature(*what: Any) -> str:
    return sha256(repr(what).encode()).hexdigest()[:16]
