"""The table of a profile: how each process divides its time."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table

from surreal.config.yaml_tree import read_table
from surreal.plugins.profile.recording import Recording, Stack, Thread

WAITING = "waiting"
OTHER = "other"
_TABLES: dict[str, Any] = read_table(__package__, "shares.yaml")
#: Kinds of work by a part of a file's path.
_PLACES: dict[str, str] = _TABLES["places"]
#: A call that may block, in the source line that runs.
_BLOCKING = re.compile(
    r"\b(?:sleep|wait\w*|recv\w*|select|poll|acquire|accept|communicate|send|sendall|sendmsg)\("
    r"|(?:thread|process|worker|supervisor)\w*\.join\(|(?:stdin|stdout|stderr|sock\w*|pipe)\.read\w*\("
)
#: Its call that waits for the rows of environments is their stepping.
_THREADED_ENVIRONMENTS = "surreal/envs/pools/envpool.py"
COLUMNS = ("update", "acting", "environment", "sampling", "encoding", "Redis", "metrics", "starting", OTHER, WAITING)
#: Threads with less work than this share of the time are left out of the table.
_LEAST_SHARE = 0.01
#: Processes without a part in learning; the timeline has them.
_NOT_SHOWN = ("check", "fork server", "helper")


def kind_of(stack: Stack) -> str:
    """Classify the work of a stack, or report that it waits: its innermost function is at a blocking call."""
    if stack[-1].file.endswith(_THREADED_ENVIRONMENTS):
        return "environment"
    if _is_blocked(stack[-1].file, stack[-1].line):
        return WAITING
    for frame in reversed(stack):
        for place, kind in _PLACES.items():
            if place in frame.file:
                return kind
    return OTHER


@cache
def _is_blocked(file: str, line: int) -> bool:
    return _BLOCKING.search(linecache.getline(file, line)) is not None


def shares_of(thread: Thread) -> dict[str, float]:
    """Divide a thread's time: the share of each column; they add up to 1."""
    spent: defaultdict[str, float] = defaultdict(float)
    for span in thread.spans:
        spent[kind_of(span.stack)] += span.duration_s
    total = sum(spent.values())
    return {column: spent[column] / total for column in COLUMNS}


def percentages(shares: Mapping[str, float]) -> dict[str, int]:
    """Round shares to whole percents that add up to 100: those with the largest remainders are rounded up."""
    found = {column: int(100 * share) for column, share in shares.items()}
    by_remainder = sorted(shares, key=lambda column: found[column] - 100 * shares[column])
    for column in by_remainder[: 100 - sum(found.values())]:
        found[column] += 1
    return found


def print_shares(recording: Recording, console: Console) -> None:
    """Print the table, with the busiest thread of each process first, and a hint."""
    table = Table(box=None)
    for column in ("process", "thread"):
        table.add_column(column, no_wrap=True)
    for column in ("seconds", *COLUMNS):
        table.add_column(column, justify="right", no_wrap=True)
    hints: list[str] = []
    shown = [(pid, name) for pid, name in recording.names.items() if name.partition(" #")[0] not in _NOT_SHOWN]
    for pid, name in sorted(shown, key=lambda item: item[1]):
        rows = [(shares_of(thread), thread) for thread in recording.threads if thread.pid == pid]
        rows.sort(key=lambda row: (row[1].title != "main", row[0][WAITING]))
        for shares, thread in rows:
            if 1 - shares[WAITING] >= _LEAST_SHARE:
                seconds = f"{sum(span.duration_s for span in thread.spans):.1f}"
                percents = percentages(shares)
                table.add_row(name, thread.title, seconds, *(f"{percents[column]}%" for column in COLUMNS))
        hints += [
            hint
            for start, kind, hint in _TABLES["hints"]
            if rows and name.startswith(start) and rows[0][0][kind] > 0.5 and hint not in hints
        ]
    console.print(table)
    for hint in hints:
        console.print(hint, markup=False, highlight=False)
