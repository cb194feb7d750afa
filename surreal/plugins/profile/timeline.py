"""Spans of time in functions: read from the events of py-spy, and written as one timeline."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """A function on a stack."""

    file: str
    function: str
    line: int  #: the line that runs


#: A stack, the outermost function first.
Stack = tuple[Frame, ...]


class Span(NamedTuple):
    """A time in which a stack did not change, s from the beginning of the recording."""

    begin_s: float
    end_s: float
    stack: Stack

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass
class Thread:
    """A thread while it was recorded."""

    pid: int
    number: int
    spans: list[Span] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its outermost function of the project; "main" if it did not begin in `threading`."""
        stack = max(self.spans, key=lambda span: span.duration_s).stack
        is_started = [frame.function.endswith("_bootstrap") for frame in stack if frame.file.endswith("threading.py")]
        if not any(is_started):
            return "main"
        ours = (frame for frame in stack if "surreal/" in frame.file and not frame.file.endswith("system/threads.py"))
        own = [frame for frame in ours if "<" not in frame.function]
        return (own[0] if own else stack[-1]).function


@dataclass
class Recording:
    """Threads of all processes, and the name of each process."""

    threads: list[Thread]
    names: dict[int, str]


def read_events(parts: Iterable[list[dict[str, Any]]], names: Mapping[int, str]) -> Recording:
    """Read py-spy's events: the begin of a function (`ph` is B) and its end (E), in microseconds of their part's clock.

    py-spy writes how the stack differs from that of the sample before with the same thread number. Processes that were
    forked from one share these numbers, so an end may belong to a function of another process than its `pid`, which is
    that of the new sample.
    """
    threads: dict[tuple[int, int], Thread] = {}
    for part in parts:
        last: dict[int, float] = {}  # by process: when it was last seen, if another one has taken its thread's number
        found = list(_read_part(part, last))
        for pid, number, span in found:
            end_s = min(span.end_s, last.get(pid, span.end_s))
            if end_s > span.begin_s:
                thread = threads.setdefault((pid, number), Thread(pid, number))
                thread.spans.append(span._replace(end_s=end_s))
    return Recording(list(threads.values()), _name_processes(list(threads.values()), names))


def _read_part(part: list[dict[str, Any]], last: dict[int, float]) -> Iterator[tuple[int, int, Span]]:
    stacks: dict[int, list[Frame]] = {}
    current: dict[tuple[int, int], tuple[float, Stack]] = {}
    owners: dict[int, int] = {}
    displaced: dict[tuple[int, int], float] = {}  # threads whose number another process had at their last sample
    seen: dict[int, float] = {}
    functions = (event for event in part if event["ph"] in "BE")
    for (number, pid, time_us), group in itertools.groupby(functions, _sample_of):
        now_s, stack = time_us / 1e6, stacks.setdefault(number, [])
        for event in group:
            if event["ph"] == "B":
                place = event["args"]
                stack.append(Frame(place["filename"].replace("\\", "/"), event["name"], place["line"] or 0))
            elif stack:
                stack.pop()
        key, owner = (number, pid), owners.get(number, pid)
        if owner != pid and (number, owner) in current:
            displaced[number, owner] = now_s
        owners[number] = pid
        displaced.pop(key, None)
        if key in current:
            begin_s, before = current.pop(key)
            yield pid, number, Span(begin_s, now_s, before)
        if functions_of := tuple(frame for frame in stack if frame.file):  # without the names of processes
            seen[pid] = now_s
            current[key] = now_s, functions_of
    for (number, pid), end_s in displaced.items():
        begin_s, before = current.pop((number, pid))
        yield pid, number, Span(begin_s, end_s, before)
        last[pid] = max(end_s, seen[pid])


def _sample_of(event: Mapping[str, Any]) -> tuple[int, int, float]:
    return event["tid"], event["pid"], event["ts"]


def write_timeline(recording: Recording, path: Path) -> None:
    """Write Chrome's trace format, with the names of processes and threads, compressed if the name ends in .gz."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{name} ({pid})"}}
        for pid, name in recording.names.items()
    ]
    for thread in recording.threads:
        place = {"pid": thread.pid, "tid": thread.number % (1 << 32)}  # the viewer has 32 bits
        events.append({"name": "thread_name", "ph": "M", **place, "args": {"name": thread.title}})
        before, end_s = Stack(), 0.0
        for span in thread.spans:
            if span.begin_s > end_s:
                events += _ends(before, 0, end_s, place)
                before = ()
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, span.stack)))  # noqa: B905
            events += _ends(before, same, span.begin_s, place)
            for frame in span.stack[same:]:
                args = {"filename": frame.file, "line": frame.line}
                events.append({"name": frame.function, "ph": "B", "ts": span.begin_s * 1e6, **place, "args": args})
            before, end_s = span.stack, span.end_s
        events += _ends(before, 0, end_s, place)
    text = json.dumps({"traceEvents": events}, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, 6) if path.suffix == ".gz" else text)


def _ends(stack: Stack, kept: int, time_s: float, place: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for frame in reversed(stack[kept:]):
        yield {"name": frame.function, "ph": "E", "ts": time_s * 1e6, **place}


#: What a process is, by a file on its stacks.
_ROLES = (
    ("surreal/envs/pools/subproc_worker.py", "env worker"),
    ("surreal/run/roles/learner.py", "learner"),
    ("surreal/run/roles/agent.py", "agent"),
    ("surreal/run/roles/eval.py", "eval"),
    ("surreal/run/roles/parameter_server.py", "parameter server"),
    ("surreal/run/roles/rlx_server.py", "rlx server"),
    ("surreal/run/roles/rlx_client.py", "rlx client"),
    ("surreal/run/launch/launcher.py", "launcher"),
    ("surreal/run/launch/check.py", "check"),
    ("surreal/run/launch/fork_server.py", "fork server"),
)


def _name_processes(threads: Sequence[Thread], names: Mapping[int, str]) -> dict[int, str]:
    files: dict[int, set[str]] = {}
    for thread in threads:
        called = (frame.file for span in thread.spans for frame in span.stack if frame.function != "<module>")
        files.setdefault(thread.pid, set()).update(called)
    found: dict[int, str] = {}
    for pid in files:
        role = next((name for end, name in _ROLES if any(file.endswith(end) for file in files[pid])), "helper")
        number = sum(name.partition(" #")[0] == role for name in found.values())
        found[pid] = names.get(pid) or (f"{role} #{number}" if number else role)
    return found
