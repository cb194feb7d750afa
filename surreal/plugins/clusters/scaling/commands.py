"""`surreal metrics`: metrics of runs for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from surreal.cli.completion import run_names
from surreal.cli.options import Panel, RedisOption, RunDir, say


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.CLUSTERS)(metrics)


def metrics(
    run_name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run to report; default: all runs of the Redis, or the newest below runs.",
            autocompletion=run_names,
        ),
    ] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: for other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 8700,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once, and exit.")] = False,
) -> None:
    """Export run metrics to Prometheus until Ctrl-C: waiting times, sessions, steps, scores."""
    from surreal.base.errors import ConfigError
    from surreal.base.system.program import install_command
    from surreal.run.process.finding import find_address

    try:
        from surreal.plugins.clusters.scaling.serving import open_reader, page, serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(f"metrics need prometheus_client; install it: {install_command('prometheus')}") from error

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
