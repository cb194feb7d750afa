"""`surreal plot`: learning curves as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.options import Panel, with_fields
from surreal.plugins.plot.options import PlotOptions
from surreal.run.process.arguments import option


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(plot)


@with_fields
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders (of one run or of many), patterns, or names below runs."),
    ],
    options: PlotOptions,
    output: Annotated[Path, option("FILE", "The picture: .png, .svg or .pdf.", "--output", "-o")] = Path("curves.png"),
    list_metrics: Annotated[bool, option(None, "Only list the metrics of these runs.", "--list")] = False,
) -> None:
    """Draw learning curves: the interquartile mean over seeds, with its confidence band."""
    import numpy as np

    from surreal.base.errors import ConfigError
    from surreal.plugins.plot.drawing import Histories
    from surreal.plugins.plot.drawing import plot as draw
    from surreal.plugins.recorded.curves import Axis
    from surreal.plugins.recorded.listing import find_runs

    if options.axis not in list(Axis):
        raise ConfigError(f"--x is {options.axis!r}; it must be {', '.join(Axis)}", key="--x")
    histories = Histories(find_runs(runs))
    for problem in histories.problems():
        typer.echo(f"warning: {problem}", err=True)
    if list_metrics:
        for name, count in histories.metrics().items():
            typer.echo(f"{name:40} {count} of {len(histories.runs)} runs")
        return
    for drawn in draw(histories, options, output, np.random.default_rng(0)):
        typer.echo(str(drawn))
    number = "1 run" if len(histories.runs) == 1 else f"{len(histories.runs)} runs"
    typer.echo(f"{output}: {number} along {Axis(options.axis).label}")
