"""A rich `Live` that a terminal does not tear when it changes its width.

When a terminal gets narrower, it breaks the lines that are there. Rich moves up as many lines as it drew, and would
leave the beginning of the old picture above the new one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment

#: Redraws a second: as often as the launcher looks at its run.
_REDRAWS_PER_S = 2


class SteadyLive(Live):
    """Keeps a picture below all that is written to the terminal meanwhile, and removes it at the end.

    Args:
        console: a terminal.
        draw: makes the picture; called by a thread of its own.
    """

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        super().__init__(
            console=console,
            get_renderable=draw,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            # Of a stream that goes elsewhere, nothing can tear the picture.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live_render = _ReflowedRender(console, draw())


class _ReflowedRender(LiveRender):
    """Knows how many lines its picture takes by now."""

    def __init__(self, console: Console, renderable: RenderableType) -> None:
        super().__init__(renderable)
        self._console = console
        self._lengths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = super().__rich_console__(console, options)
        segments = [segment for segment in drawn if isinstance(segment, Segment)]
        self._lengths = [Segment.get_line_length(line) for line in Segment.split_lines(segments)]
        yield from segments

    def position_cursor(self) -> Control:
        """Move to where the picture begins, and clear it."""
        if not self._lengths:
            return Control()
        width = max(self._console.width, 1)
        height = sum(max(1, -(-length // width)) for length in self._lengths)
        erase = (ControlType.ERASE_IN_LINE, 2)
        return Control(ControlType.CARRIAGE_RETURN, erase, *((ControlType.CURSOR_UP, 1), erase) * (height - 1))
