"""The page's server: the page, the videos of runs, and the request that stops a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dash import Dash
from flask import Flask, Response, abort, has_request_context, request, send_file

from surreal.base.errors import SurrealError
from surreal.plugins.dashboard.guard import Guard
from surreal.plugins.dashboard.page.curves import Loaded, first_metrics
from surreal.plugins.dashboard.page.layout import FIRST_RUNS, layout
from surreal.plugins.dashboard.page.parts import find_videos
from surreal.plugins.dashboard.sources.runs import Runs
from surreal.plugins.dashboard.wiring import wire

_ASSETS = Path(__file__).parent / "assets"


def make_app(runs: Runs, guard: Guard) -> Flask:
    """Build the server's application, which shows `runs`; `guard` checks each request."""
    app = Dash(
        "surreal.plugins.dashboard",
        assets_folder=str(_ASSETS),
        title="Surreal",
        update_title="",
        enable_mcp=False,
        serve_locally=True,
        add_log_handler=False,
    )

    def page() -> Any:
        listed = runs.listed()
        found = [runs.watch(key) for key in list(listed)[:FIRST_RUNS]]
        loaded = [Loaded(each, each.recorded()) for each in found if each is not None]
        may_stop = has_request_context() and guard.may_change(request)  # Dash also calls this without a request
        return layout(listed, first_metrics(loaded), may_stop=may_stop)

    app.layout = page
    wire(app, runs)
    server: Flask = app.server
    server.add_url_rule("/stop/<key>", "stop", lambda key: _stop(runs, guard, key), methods=["POST"])
    server.add_url_rule("/videos/<key>/<name>", "video", lambda key, name: _video(runs, key, name))
    guard.protect(server, app.csp_hashes())
    return server


def _stop(runs: Runs, guard: Guard, key: str) -> Response:
    if not guard.may_change(request):
        return _answer(403, "Stopping a run needs the token that `surreal dashboard` printed.")
    watched = runs.watch(key)
    if watched is None:
        return _answer(404, "This run no longer exists.")
    try:
        is_first = watched.stop("surreal dashboard")
    except SurrealError as error:
        return _answer(409, f"It could not be stopped: {error}")
    return _answer(200, "The run was asked to stop." if is_first else "The run is already ending.")


def _answer(code: int, words: str) -> Response:
    return Response(json.dumps({"answer": words}), code, mimetype="application/json")


def _video(runs: Runs, key: str, name: str) -> Response:
    """Send one of the videos that the page lists, and no other file."""
    watched = runs.watch(key)
    folder = None if watched is None else watched.listed.folder
    path = next((path for path in find_videos(folder) if path.name == name), None) if folder else None
    if path is None:
        abort(404)
    return send_file(path.absolute(), conditional=True)
