"""Scores and metrics of a run as tables: of pandas where it is installed, else columns in a dict."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SHOWN_ROWS = 5
#: From here on, a time has no date, s since 1970.
_YEAR_10000 = 253_402_300_800


class ColumnTable(dict[str, list[Any]]):
    """Column -> its values, all of the same length; None where a row has no value.

    Its repr shows the columns that fit the terminal, and the names of the others; `time` is shown in UTC.
    """

    def __repr__(self) -> str:
        rows, space = len(next(iter(self.values()), [])), shutil.get_terminal_size().columns
        columns = {
            name: [name, *(_text(name, value) for value in values[-_SHOWN_ROWS:])] for name, values in self.items()
        }
        shown: list[list[str]] = []
        for cells in columns.values():
            width = max(map(len, cells))
            if shown and width >= space:
                break
            space -= width + 1
            shown.append([cell.rjust(width) for cell in cells])
        lines = [" ".join(line) for line in zip(*shown, strict=True)]
        facts = f"[{rows} rows; the last {min(rows, _SHOWN_ROWS)} are shown]"
        if left_out := list(columns)[len(shown) :]:
            facts = f"{facts[:-1]}; more columns: {', '.join(left_out)}]"
        return "\n".join([*lines, facts])


def table(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make a `pandas.DataFrame` of rows, or `ColumnTable` where pandas is not installed."""
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    columns = {name: [row.get(name) for row in listed] for name in names}
    if importlib.util.find_spec("pandas") is None:
        return ColumnTable(columns)
    return importlib.import_module("pandas").DataFrame(columns)


def read_lines(path: Path) -> Iterable[dict[str, Any]]:
    """Read the objects of a file of JSON lines; a line that is not whole is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def _text(name: str, value: Any) -> str:
    if name == "time" and isinstance(value, float) and 0 <= value < _YEAR_10000:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S}"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
