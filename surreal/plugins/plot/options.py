"""Options of `surreal plot`: metrics to draw, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class PlotOptions:
    """Metrics to draw, and how."""

    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric to draw, repeatable; default: evaluation return."),
    ] = None
    axis: Annotated[str, typer.Option("--x", metavar="AXIS", help="x axis: steps, updates or seconds.")] = "steps"
    smoothing: Annotated[
        float, typer.Option("--smooth", min=0.0, max=0.999, help="Smooth each run: 0 not at all, 0.9 strongly.")
    ] = 0.0
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", metavar="SETTING", help="Group runs by this setting only, repeatable; default: by all settings."
        ),
    ] = None
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence level of the bands.")] = 0.95
    shows_runs: Annotated[bool, typer.Option("--each", help="Also draw each run.")] = False
    is_log: Annotated[bool, typer.Option("--log", help="Use a logarithmic scale for the values.")] = False
    title: Annotated[str, typer.Option(help="Title above the picture; default: the environments.")] = ""
