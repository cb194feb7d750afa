"""A picture of curves, drawn by matplotlib: one panel a metric, one color a group.

Names come from folders and files: none of them is read as a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surreal.base.errors import ConfigError, FolderError, describe_os_error
from surreal.base.system.program import install_command
from surreal.plugins.recorded.curves import COLORS, Axis, Band, Line, color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
_PANEL_INCHES = (7.2, 3.8)
_DASHES = ("-", "--", ":", "-.")
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "text.parse_math": False,
    "svg.hashsalt": "surreal",  # the same curves make the same file
    "svg.fonttype": "none",
}


class Curve(NamedTuple):
    """One group in one panel."""

    label: str
    band: Band
    runs: Sequence[Line] = ()  #: drawn besides, thin


class Panel(NamedTuple):
    """One metric."""

    name: str
    curves: Sequence[Curve]


def require_format(path: Path) -> None:
    """Refuse a file whose ending is none of FORMATS.

    Raises:
        ConfigError: it is another.
    """
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise ConfigError(f"{path} must end with .{', .'.join(FORMATS[:-1])} or .{FORMATS[-1]}", key="-o")


def draw(panels: Sequence[Panel], axis: Axis, path: Path, *, title: str = "", is_log: bool = False) -> None:
    """Draw panels, one below the other, into a file.

    Args:
        panels: what to draw.
        axis: what the curves go along.
        path: path of the file, which is replaced; its ending says what it becomes.
        title: above all of it.
        is_log: whether values are drawn on a logarithmic scale.

    Raises:
        ConfigError: matplotlib is not installed.
        FolderError: the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"pictures need matplotlib; install it: {install_command('plot')}") from error
    width, height = _PANEL_INCHES
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height * len(panels)), dpi=150, layout="constrained")
        every = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, panel in zip(every, panels, strict=True):
            _draw_panel(axes, panel, is_log)
        every[-1].set_xlabel(axis.label)
        if title:
            figure.suptitle(title)
        try:
            # No date: the same curves make the same file.
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise FolderError(f"the picture could not be written: {describe_os_error(error)}") from error


def _draw_panel(axes: Axes, panel: Panel, is_log: bool) -> None:
    handles = []
    for number, curve in enumerate(panel.curves):
        style: dict[str, Any] = {"color": color(number), "linestyle": _DASHES[number // len(COLORS) % len(_DASHES)]}
        for line in curve.runs:
            axes.plot(line.x, line.y, linewidth=0.7, alpha=0.4, **style)
        # One point makes no line.
        handles += axes.plot(
            curve.band.x, curve.band.middle, linewidth=1.8, marker="o" if len(curve.band.x) == 1 else "", **style
        )
        axes.fill_between(curve.band.x, curve.band.low, curve.band.high, color=style["color"], alpha=0.2, linewidth=0)
    axes.set_ylabel(panel.name)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    if is_log:
        axes.set_yscale("log")
    # A label that begins with an underscore would be left out.
    labels = [
        f"\N{ZERO WIDTH SPACE}{curve.label}" if curve.label.startswith("_") else curve.label for curve in panel.curves
    ]
    axes.legend(handles, labels, frameon=False, fontsize=9)
