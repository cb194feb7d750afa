"""Keys as they are pressed, without Enter and without an echo, while a terminal shows something live."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TextIO


class Keyboard:
    """A terminal's keys, in a `with`, after which the terminal is as it was.

    Args:
        stream: to read from; None, and what is no terminal, has no keys.

    Attributes:
        is_there: whether there are keys.
        is_gone: whether the terminal was closed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._file = stream.fileno() if stream is not None and stream.isatty() else None
        self.is_there = self._file is not None
        self._before: list[Any] | None = None
        self.is_gone = False

    def __enter__(self) -> Self:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None and self._before is not None:
            with suppress(termios.error):  # a terminal that is gone
                termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> str:
        """The next key; "" if none was pressed in time, or the terminal is gone."""
        if self.is_gone or self._file is None:
            time.sleep(timeout_s)
            return ""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return ""
        try:
            data = os.read(self._file, 1)
        except OSError:
            data = b""
        self.is_gone = not data
        return data.decode("ascii", "replace")
