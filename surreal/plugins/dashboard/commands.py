"""`surreal dashboard`: all runs on a web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.options import Panel, RedisOption


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(dashboard)


def dashboard(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER_OR_RUN...", help="Folders of runs, or runs; default: runs.")
    ] = None,
    redis: RedisOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; every request needs the token unless it is 127.0.0.1.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 8600,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that keeps the token between starts; made if missing.")
    ] = None,
) -> None:
    """Show all runs on a web page, until Ctrl-C: curves, settings, processes, logs, videos."""
    import os

    from rich.console import Console

    from surreal.cli.options import say
    from surreal.plugins.dashboard.serving import serve
    from surreal.run.process.arguments import REDIS_VARIABLE
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
