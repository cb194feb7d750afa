"""Keys as they are pressed, without Enter and without an echo, while a terminal shows something live."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from types import TracebackType
from typing import Self, TextIO


class Keyboard:
    """A terminal's keys, in a `with`, after which the terminal is as it was.

    Args:
        stream: to read from; what is no terminal has no keys.
    """

    def __init__(self, stream: TextIO) -> None:
        self._file = stream.fileno() if stream.isatty() else None
        self._before: list[object] | None = None

    def __enter__(self) -> Self:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None and self._before is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> str:
        """The next key; "" if none was pressed in time, or the terminal is gone."""
        if self._file is None:
            time.sleep(timeout_s)
            return ""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return ""
        data = os.read(self._file, 1)
        if not data:  # closed: it would be ready for ever
            self._file = None
        return data.decode("ascii", "replace")
