"""`surreal plot`: learning curves as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.options import Panel


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(plot)


def plot(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders (of one run or of many), patterns, or names below runs."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The picture: .png, .svg or .pdf.")
    ] = Path("curves.png"),
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric to draw, repeatable; default: evaluation return."),
    ] = None,
    axis: Annotated[str, typer.Option("--x", metavar="AXIS", help="x axis: steps, updates or seconds.")] = "steps",
    smooth: Annotated[
        float, typer.Option(min=0.0, max=0.999, help="Smooth each run: 0 not at all, 0.9 strongly.")
    ] = 0.0,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", metavar="SETTING", help="Group runs by this setting only, repeatable; default: by all settings."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence level of the bands.")] = 0.95,
    each: Annotated[bool, typer.Option("--each", help="Also draw each run.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Use a logarithmic scale for the values.")] = False,
    title: Annotated[str, typer.Option(help="Title above the picture.")] = "",
    list_metrics: Annotated[bool, typer.Option("--list", help="Only list the metrics of these runs.")] = False,
) -> None:
    """Draw learning curves: the interquartile mean over seeds, with its confidence band."""
    import numpy as np

    from surreal.base.errors import ConfigError
    from surreal.plugins.plot.drawing import Histories, PlotOptions
    from surreal.plugins.plot.drawing import plot as draw
    from surreal.plugins.recorded.curves import Axis
    from surreal.plugins.recorded.history import RETURN
    from surreal.plugins.recorded.listing import find_runs

    if axis not in list(Axis):
        raise ConfigError(f"--x is {axis!r}; it must be {', '.join(Axis)}", key="--x")
    histories = Histories(find_runs(runs))
    for problem in histories.problems():
        typer.echo(f"warning: {problem}", err=True)
    if list_metrics:
        for name, count in histories.metrics().items():
            typer.echo(f"{name:40} {count} of {len(histories.runs)} runs")
        return
    options = PlotOptions(
        metrics=tuple(metrics or (RETURN,)),
        axis=Axis(axis),
        smoothing=smooth,
        by=None if by is None else tuple(by),
        confidence=confidence,
        shows_runs=each,
        title=title,
        is_log=log,
    )
    for drawn in draw(histories, options, output, np.random.default_rng(0)):
        typer.echo(str(drawn))
    number = "1 run" if len(histories.runs) == 1 else f"{len(histories.runs)} runs"
    typer.echo(f"{output}: {number} along {options.axis.label}")
