"""`surreal metrics`: a run's figures for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from surreal.cli.completion import run_names
from surreal.cli.options import Panel, RedisOption, RunDir, say


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(rich_help_panel=Panel.CLUSTERS)(metrics)


def metrics(
    run_name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="Default: all runs of the Redis, or the newest below runs.", autocompletion=run_names
        ),
    ] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0: for other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 8700,
    once: Annotated[bool, typer.Option("--once", help="Print what a scrape gets, and end.")] = False,
) -> None:
    """Serve Prometheus what runs say of themselves, until Ctrl-C: who waits for whom, sessions, steps, scores."""
    from surreal.plugins.clusters.scaling.serving import open_reader, page, serve
    from surreal.run.process.finding import find_address

    address, run = find_address(run_name, address=redis, run_dir=run_dir)
    reader = open_reader(address, run)
    if once:
        typer.echo(page(reader), nl=False)
        return
    console, what = Console(soft_wrap=True), "all runs" if run is None else f"run {run}"
    serve(
        reader,
        host=host,
        port=port,
        on_ready=lambda url: say(console, f"metrics of {what} at {url}; Ctrl-C ends it"),
    )
