"""Options of `surreal plot`: metrics to draw, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from surreal.run.process.arguments import option


@dataclass(frozen=True)
class PlotOptions:
    """Metrics to draw, and how."""

    metrics: Annotated[
        list[str] | None, option("NAME", "Metric to draw, repeatable; default: evaluation return.", "--metric", "-m")
    ] = None
    axis: Annotated[str, option("AXIS", "x axis: steps, updates or seconds.", "--x")] = "steps"
    smoothing: Annotated[
        float, option(None, "Smooth each run: 0 not at all, 0.9 strongly.", "--smooth", min=0.0, max=0.999)
    ] = 0.0
    by: Annotated[
        list[str] | None,
        option("SETTING", "Group runs by this setting only, repeatable; default: by all settings.", "--by"),
    ] = None
    confidence: Annotated[float, option(None, "Confidence level of the bands.", min=0.01, max=0.999)] = 0.95
    shows_runs: Annotated[bool, option(None, "Also draw each run.", "--each")] = False
    is_log: Annotated[bool, option(None, "Use a logarithmic scale for the values.", "--log")] = False
    title: Annotated[str, option(None, "Title above the picture; default: the environments.")] = ""
