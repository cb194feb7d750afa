"""Scores and metrics of a run as tables: of pandas where it is installed, else columns in a dict."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_SHOWN_ROWS = 5


class ColumnTable(dict[str, list[Any]]):
    """Column -> its values, all of the same length; None where a row has no value."""

    def __repr__(self) -> str:
        rows = len(next(iter(self.values()), []))
        lines = [" ".join(f"{name:>14.14}" for name in self)]
        for index in range(max(0, rows - _SHOWN_ROWS), rows):
            lines.append(" ".join(f"{_text(values[index]):>14.14}" for values in self.values()))
        return "\n".join([*lines, f"[{rows} rows; the last {min(rows, _SHOWN_ROWS)} are shown]"])


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


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
