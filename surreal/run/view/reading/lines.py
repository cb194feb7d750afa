"""Whole lines of a file that grows: `metrics.jsonl`, `scores.jsonl`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, NamedTuple

#: Bytes that are read at once; a longer line is passed over.
BLOCK_BYTES = 1 << 20
#: Bytes before the place that was reached, by which another file under the same name is told.
_MEMORY_BYTES = 64


class Portion(NamedTuple):
    """What one reading gave."""

    lines: list[bytes]
    is_restart: bool = False  #: the file is another than it was: these lines are its first
    is_end: bool = True  #: whether there is no more for now


class LineReader:
    """Gives each whole line of a file once; a line that is still being written comes when it is whole.

    A file that was cut back or replaced is read again from its beginning.

    Args:
        path: of the file, which need not be there yet.

    Attributes:
        offset: bytes that were read.
        skipped: lines that were too long.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.skipped = 0
        self._before = b""
        self._is_inside_long_line = False

    def read(self) -> Portion:
        """Read on, at most one block.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return Portion([])
        with file:
            is_restart = not self._is_the_same(file)
            if is_restart:
                self.offset = self.skipped = 0
                self._before, self._is_inside_long_line = b"", False
            file.seek(self.offset)
            data = file.read(BLOCK_BYTES)
            size = os.fstat(file.fileno()).st_size
        whole, newline, _ = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        if self._is_inside_long_line and lines:
            del lines[0]
            self._is_inside_long_line = False
        consumed = len(whole) + len(newline)
        if not newline and len(data) == BLOCK_BYTES:
            self.skipped += not self._is_inside_long_line
            self._is_inside_long_line, consumed = True, len(data)
        self.offset += consumed
        self._before = (self._before + data[:consumed])[-_MEMORY_BYTES:]
        return Portion(lines, is_restart, not consumed or self.offset >= size)

    def _is_the_same(self, file: IO[bytes]) -> bool:
        file.seek(self.offset - len(self._before))
        return file.read(len(self._before)) == self._before
