"""Output of a command to a terminal, pipe or file, which may be closed or full at any time."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_CLOSED = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})


class Output:
    """A stream that never raises: the first failure is reported, and later output is dropped; for any thread.

    Args:
        on_failure: called once with the reason, on the writing thread.
    """

    def __init__(self, stream: TextIO, on_failure: Callable[[str], object]) -> None:
        self._stream = stream
        self._on_failure = on_failure
        self.is_closed = False

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        if not self.is_closed:
            try:
                return self._write(text)
            except (OSError, ValueError) as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop the buffer."""
        if not self.is_closed:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._fail(error)

    def isatty(self) -> bool:
        return not self.is_closed and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:  # the terminal lacks a character
            self._stream.write(text.encode(error.encoding, "replace").decode(error.encoding))
            return len(text)

    def _fail(self, error: Exception) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        _discard(self._stream)
        is_gone = not isinstance(error, OSError) or error.errno in _CLOSED
        self._on_failure("its output was closed" if is_gone else f"its output cannot be written: {error}")


def flush_output() -> None:
    """Flush stdout and stderr for the last time; drop what cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)


def _discard(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that its buffer does not fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
