"""`Screen`: a terminal that is drawn on, and given back as it was, however that ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self, TextIO

import numpy as np

from surreal.base.errors import EnvError
from surreal.envs.terminal.frames import Colors, frame_lines

#: The other screen, which leaves what was on the terminal alone; no cursor, no wrapping of lines. And back again.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """The whole terminal, for one image at a time and a line of text below it.

        with Screen(sys.stdout, Colors.TRUE) as screen:
            screen.show(frame, "step 1")
            screen.say("episode 1 is over")       # on the terminal once the screen is left

    Args:
        stream: the terminal.
        colors: what it can show.
        size: gives its columns and lines.

    Attributes:
        title: begins the line below the image.
    """

    def __init__(
        self, stream: TextIO, colors: Colors, size: Callable[[], os.terminal_size] = shutil.get_terminal_size
    ) -> None:
        self.title = ""
        self._stream = stream
        self._colors = colors
        self._size = size
        self._said: list[str] = []
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _end)
        self._stream.write(_ENTER)
        self._stream.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        self._stream.write(_LEAVE + "".join(f"{line}\n" for line in self._said))
        self._stream.flush()

    def show(self, picture: object, text: str) -> None:
        """Draw what an environment has rendered, and a line below it.

        Args:
            picture: [height, width, 3] uint8, or text of several lines.
            text: of the line.

        Raises:
            EnvError: it is neither.
        """
        columns, lines = self._size()
        rows = max(lines - 1, 1)
        if isinstance(picture, str):
            drawn = picture.rstrip("\n").splitlines()[:rows]
        elif isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3:
            drawn = frame_lines(np.ascontiguousarray(picture, np.uint8), max(columns, 1), rows, self._colors)
        else:
            kind = f"an array {picture.shape}" if isinstance(picture, np.ndarray) else f"a {type(picture).__name__}"
            raise EnvError(f"the environment renders {kind}; a terminal shows [height, width, 3] images and text")
        below = "  ".join(part for part in (self.title, text) if part)[:columns]
        content = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in drawn)
        self._stream.write(f"{_HOME}{content}\x1b[0m{below}{_REST_OF_SCREEN}")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Keep a line for when the screen is left."""
        self._said.append(text)


def open_screen(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> Screen:
    """Make the screen of this terminal, with the colours that it says it has.

    Args:
        stream: the terminal; None is stdout.
        environ: `COLORTERM`, `TERM` and `NO_COLOR` say what it can show.

    Raises:
        EnvError: the output is no terminal, or one that cannot be drawn on.
    """
    stream = sys.stdout if stream is None else stream
    kind = environ.get("TERM", "")
    if not stream.isatty() or kind in ("", "dumb"):
        found = f"TERM is {kind!r}" if stream.isatty() else "the output goes elsewhere"
        raise EnvError(f"--terminal draws on a terminal, but {found}; videos need none: --record DIR")
    if environ.get("NO_COLOR"):
        return Screen(stream, Colors.NONE)
    is_true = environ.get("COLORTERM") in ("truecolor", "24bit") or kind.endswith("-direct")
    return Screen(stream, Colors.TRUE if is_true else Colors.MANY)


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
