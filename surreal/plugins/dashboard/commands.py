"""`surreal dashboard`: serves all runs as a web page on a socket, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from surreal.base.errors import ConfigError, SurrealError, describe_os_error
from surreal.base.system.program import install_command
from surreal.cli.options import Panel, RedisOption, say
from surreal.run.process.arguments import REDIS_VARIABLE, option
from surreal.run.process.interrupts import stop_at_signals


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(dashboard)


def dashboard(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER_OR_RUN...", help="Folders of runs, or runs; default: runs.")
    ] = None,
    redis: RedisOption = None,
    host: Annotated[
        str, option(None, "Address to listen on; every request needs the token unless it is 127.0.0.1.")
    ] = "127.0.0.1",
    port: Annotated[int, option(None, "TCP port; 0: a free one.", min=0, max=65535)] = 8600,
    token_file: Annotated[
        Path | None, option("FILE", "File that keeps the token between starts; made if missing.")
    ] = None,
) -> None:
    """Show all runs on a web page, until Ctrl-C: curves, settings, processes, logs, videos."""
    from surreal.run.process.finding import require_folder
    from surreal.run.process.run_folder import RUNS_FOLDER

    shown = [folder if folder.is_dir() else require_folder(folder).path for folder in folders or ()]
    console = Console(soft_wrap=True)

    def on_ready(page: str, token: str) -> None:
        say(console, f"dashboard at {page}; Ctrl-C ends it")
        # The output may be logged, so it only has a token that is new each time.
        shown = token if token_file is None else f"TOKEN with the token in {token_file}"
        say(console, f"to stop runs from it, open {page}?token={shown}")

    serve(
        shown or [RUNS_FOLDER],
        redis=redis or os.environ.get(REDIS_VARIABLE),
        host=host,
        port=port,
        token_file=token_file,
        on_ready=on_ready,
    )


#: Time after which a silent connection is closed, which ends its thread, s.
_IDLE_S = 60


def serve(
    folders: Sequence[Path],
    *,
    redis: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    on_ready: Callable[[str, str], object],
    stop: threading.Event | None = None,
) -> None:
    """Serve the runs of folders and of a Redis until a signal comes, or `stop` is set; port 0 is a free one."""
    try:
        from werkzeug.serving import WSGIRequestHandler, make_server

        from surreal.plugins.dashboard.app import Guard, make_app, read_token
        from surreal.plugins.dashboard.sources.runs import Runs
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("dash", "flask", "plotly", "werkzeug"):
            raise
        raise ConfigError(f"the dashboard needs Dash; install it: {install_command('dashboard')}") from error

    class Handler(WSGIRequestHandler):
        """Answers several requests of a connection, and logs none, because a URL may contain the token."""

        protocol_version = "HTTP/1.1"
        timeout = _IDLE_S

        def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
            return

    token = read_token(token_file)
    stop = stop or stop_at_signals()
    with _listen(host, port) as listening:
        port = listening.getsockname()[1]
        runs = Runs(folders, redis)
        app = make_app(runs, Guard(token, host=host, port=port))
        # Its threads are daemons, so an open page does not delay the end.
        server = make_server(host, port, app, threaded=True, request_handler=Handler, fd=listening.fileno())
        thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
        thread.start()
        try:
            page = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
            on_ready(page, token)
            stop.wait()
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            runs.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except socket.gaierror as error:
        raise ConfigError(f"--host is {host!r}: {error.strerror}", key="--host") from error
    except OSError as error:
        raise SurrealError(f"cannot listen on {host} port {port}: {describe_os_error(error)}") from error
