"""The table of a profile: how each process divides its time."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from functools import cache

from rich.console import Console
from rich.table import Table

from surreal.plugins.profile.recording import Recording, Stack, Thread

WAITING = "waiting"
OTHER = "other"
#: What a function is for, by a part of its file's path. The innermost function that has one decides: torch, NumPy and
#: models belong to the function that calls them.
_PLACES = (
    ("surreal/envs/", "environment"),
    ("/gymnasium/", "environment"),
    ("/ale_py/", "environment"),
    ("/shimmy/", "environment"),
    ("/dm_control/", "environment"),
    ("surreal/distributed/experience/", "encoding"),
    ("surreal/distributed/parameters/", "encoding"),
    ("surreal/distributed/gradients/", "encoding"),
    ("surreal/distributed/connection/tensor_bytes.py", "encoding"),
    ("surreal/rlx/", "encoding"),
    ("surreal/replay/", "sampling"),
    ("surreal/learner/", "update"),
    ("surreal/agent/", "acting"),
    ("surreal/distributed/telemetry/", "metrics"),
    ("surreal/run/observers/", "metrics"),
    ("surreal/distributed/connection/", "Redis"),
    ("/redis/", "Redis"),
    ("<frozen importlib", "starting"),
    ("surreal/run/build/", "starting"),
)
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
#: What helps if most of a process's main thread is of one kind, by the beginning of the process's name.
_HINTS = (
    (
        "learner",
        WAITING,
        "the learner waits for experience: more agents or environments, or more updates from each step",
    ),
    ("learner", "sampling", "the learner samples: larger batches, or frames stored once (docs/replay.md)"),
    ("learner", "update", "the learner computes: a smaller network, fewer epochs, or a GPU (learner.device)"),
    ("agent", WAITING, "agents wait for the learner or for room: fewer of them, or sender.on_full: drop"),
    ("agent", "environment", "agents step environments: more agents, env.pool: subproc or envpool"),
    ("agent", "acting", "agents compute actions: more environments per agent (env.num_envs), a smaller network"),
)


def kind_of(stack: Stack) -> str:
    """Tell what a stack works on, or that it waits: its innermost function is at a call that blocks."""
    if stack[-1].file.endswith(_THREADED_ENVIRONMENTS):
        return "environment"
    if _is_blocked(stack[-1].file, stack[-1].line):
        return WAITING
    for frame in reversed(stack):
        for place, kind in _PLACES:
            if place in frame.file:
                return kind
    return OTHER


@cache
def _is_blocked(file: str, line: int) -> bool:
    return _BLOCKING.search(linecache.getline(file, line)) is not None


def shares_of(thread: Thread) -> dict[str, float]:
    """Divide a thread's time: the share of each column, which add up to 1."""
    spent: defaultdict[str, float] = defaultdict(float)
    for span_s, stack in thread.spans:
        spent[kind_of(stack)] += span_s
    total = sum(spent.values())
    return {column: spent[column] / total for column in COLUMNS}


def print_shares(recording: Recording, console: Console) -> None:
    """Print the table, busiest thread first in each process, and what would help."""
    table = Table(box=None)
    for column in ("process", "thread"):
        table.add_column(column, no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    hints: list[str] = []
    for pid, name in sorted(recording.names.items(), key=lambda item: item[1]):
        rows = [(shares_of(thread), thread) for thread in recording.threads if thread.pid == pid]
        rows.sort(key=lambda row: (_title(row[1]) != "main", row[0][WAITING]))
        for shares, thread in rows:
            if 1 - shares[WAITING] >= _LEAST_SHARE:
                table.add_row(name, _title(thread), *(f"{shares[column]:.0%}" for column in COLUMNS))
        hints += [
            hint
            for start, kind, hint in _HINTS
            if rows and name.startswith(start) and rows[0][0][kind] > 0.5 and hint not in hints
        ]
    console.print(table)
    for hint in hints:
        console.print(hint, markup=False, highlight=False)


def _title(thread: Thread) -> str:
    """Name a thread by its outermost function of the project; "main" if it did not begin in `threading`."""
    stack = max(thread.spans, key=lambda span: span[0])[1]
    if not any(frame.function == "_bootstrap" and frame.file.endswith("threading.py") for frame in stack):
        return "main"
    own = [frame for frame in stack if "surreal/" in frame.file and not frame.file.endswith("system/threads.py")]
    return own[0].function if own else stack[-1].function
