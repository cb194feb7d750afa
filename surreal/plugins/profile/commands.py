"""`surreal profile`: a timeline of all processes of a run, and a table of what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.completion import run_names
from surreal.cli.options import Overrides, Panel, RedisOption, RunDir

#: Columns that the table needs.
_WIDTH = 150


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(profile)


def profile(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|PRESET|FILE]",
            help="A run in progress (default: the newest), or a preset or configuration to start.",
            autocompletion=run_names,
        ),
    ] = None,
    overrides: Overrides = None,
    seconds: Annotated[float, typer.Option(min=1, help="Length of the recording.")] = 20.0,
    rate: Annotated[int, typer.Option(min=1, max=1000, help="Samples per second of each thread.")] = 100,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The timeline, for ui.perfetto.dev.")
    ] = Path("profile.json.gz"),
    redis: RedisOption = None,
    run_dir: RunDir = None,
) -> None:
    """Show where each process of a run spends its time: update, acting, environment, encoding, waiting."""
    from rich.console import Console

    from surreal.plugins.profile.recording import record_run, record_start, write_timeline
    from surreal.plugins.profile.shares import print_shares
    from surreal.run.process.finding import find_run

    if target is not None and _is_configuration(target):
        recording = record_start(target, overrides or [], seconds=seconds, rate=rate)
    elif overrides:
        raise typer.BadParameter(f"{target or 'a run in progress'} is not a preset or a file, so --set has no use")
    else:
        with find_run(target, address=redis, run_dir=run_dir) as client:
            recording = record_run(client, seconds=seconds, rate=rate)
    write_timeline(recording, output)
    print_shares(recording, Console(soft_wrap=True, width=max(Console().width, _WIDTH)))
    typer.echo(f"timeline: {output}; open it in https://ui.perfetto.dev, which keeps it in your browser")


def _is_configuration(target: str) -> bool:
    from surreal.config.preset_files import preset_names

    return target in preset_names() or (target.endswith((".yaml", ".yml")) and Path(target).is_file())
