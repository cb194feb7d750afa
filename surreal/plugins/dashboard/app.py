"""The page's server: the page, files of runs, the request that stops a run, and access to all of them.

- If it listens on a loopback address (the default), every user of this machine may look; stopping needs the token.
- On any other address, everything needs the token.
- The token comes as `/?token=...`, which is answered with a cookie and the page, or in the header `X-Surreal-Token`.
- A POST from another site's page is refused, by its `Origin`. On a loopback address, a request for another host name is
  also refused, because such a name was made to lead here (DNS rebinding).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dash import Dash
from flask import Flask, Request, Response, abort, has_request_context, redirect, request, send_file

from surreal.base.errors import ConfigError, SurrealError, describe_os_error
from surreal.plugins.dashboard.page.curves import Loaded, first_metrics
from surreal.plugins.dashboard.page.layout import FIRST_RUNS, layout
from surreal.plugins.dashboard.page.parts import find_profiles, find_videos
from surreal.plugins.dashboard.sources.runs import Runs
from surreal.plugins.dashboard.wiring import wire
from surreal.rlx.server.settings import is_loopback

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
    server.add_url_rule("/videos/<key>/<name>", "video", lambda key, name: _file(runs, key, name, find_videos))
    server.add_url_rule("/profiles/<key>/<name>", "profile", lambda key, name: _file(runs, key, name, find_profiles))
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


def _file(runs: Runs, key: str, name: str, find: Callable[[Path], list[Path]]) -> Response:
    """Send one of the files of a run that the page lists, and no other."""
    watched = runs.watch(key)
    folder = None if watched is None else watched.listed.folder
    path = next((path for path in find(folder) if path.name == name), None) if folder else None
    if path is None:
        abort(404)
    return send_file(path.absolute(), conditional=True)


TOKEN_HEADER = "X-Surreal-Token"  # noqa: S105 - its name
_MIN_TOKEN_CHARS = 16
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_REFUSAL = (
    "This dashboard needs its token: open the address that `surreal dashboard` printed, the one with ?token=...\n"
)
#: The page loads nothing from elsewhere, and no page may frame it. Plotly needs style attributes.
_POLICY = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"


def read_token(path: Path | None) -> str:
    """Read the token from a file, which is made if it is missing; without a file, make a new token."""
    if path is None:
        return secrets.token_urlsafe(24)
    try:
        if not path.exists():
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(f"{secrets.token_urlsafe(24)}\n")
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"other users may read {path}; run: chmod 600 {path}", key="--token-file")
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"the token cannot be read: {why}", key="--token-file") from error
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        problem = f"{path} has no token of at least {_MIN_TOKEN_CHARS} ASCII characters"
        raise ConfigError(problem, key="--token-file")
    return token


class Guard:
    """Accepts or refuses each request. Browsers share cookies between ports, so the name of the cookie has the port."""

    def __init__(self, token: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._token = token
        self._is_local = is_loopback(host)
        self._names = _LOCAL_NAMES | {host}
        self._cookie = f"surreal_dashboard_{port}"

    def protect(self, server: Flask, script_hashes: Sequence[str]) -> None:
        """Check each request of `server`, and add security headers; `script_hashes` are of its inline scripts."""
        policy = f"{_POLICY}; script-src 'self' {' '.join(script_hashes)}"

        @server.before_request
        def check() -> Response | None:
            return self.check(request)

        @server.after_request
        def seal(response: Response) -> Response:
            response.headers["Content-Security-Policy"] = policy
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["X-Frame-Options"] = "DENY"
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

    def check(self, asked: Request) -> Response | None:
        """Refuse a request, redirect it, or return None to answer it."""
        if self._is_local and _split(f"//{asked.host}").hostname not in self._names:
            abort(403, "this dashboard can only be reached from this machine")
        origin = asked.headers.get("Origin")
        is_from_here = origin is not None and _split(origin).netloc == asked.host
        if asked.method not in ("GET", "HEAD") and not is_from_here:
            abort(403, "this request must come from the dashboard's page")
        if asked.path == "/" and "token" in asked.args:
            if not self._is_token(asked.args["token"]):
                abort(403, "this is not the token")
            answer = redirect("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
            return Response(answer.get_data(), 303, answer.headers)
        if not self._is_local and not self.may_change(asked):
            return Response(_REFUSAL, 401, mimetype="text/plain")
        return None

    def may_change(self, asked: Request) -> bool:
        return self._is_token(asked.headers.get(TOKEN_HEADER)) or self._is_token(asked.cookies.get(self._cookie))

    def _is_token(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token.encode())


def _split(url: str) -> SplitResult:
    """Split a URL from an untrusted peer; an invalid one has no host."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
