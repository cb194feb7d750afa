"""Recordings by py-spy, which samples the Python stacks of processes from outside, so a run needs no change for it.

Its events become spans of time in functions, which are written as one timeline.
"""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from surreal.base.errors import SurrealError
from surreal.base.system.program import install_command
from surreal.distributed.connection.client import RedisClient
from surreal.run.view.reader import RunReader


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
    for (number, pid, time_us), group in itertools.groupby(functions, itemgetter("tid", "pid", "ts")):
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


def record_run(client: RedisClient, *, seconds: float, rate: int) -> Recording:
    """Record the processes of a run that are on this machine. Raises `SurrealError` if none are here, or py-spy is
    missing or may not look into them.
    """
    beats = [beat for beat in RunReader(client).read().alive if beat.host == socket.gethostname()]
    names = {beat.pid: beat.name for beat in beats if psutil.pid_exists(beat.pid)}
    if not names:
        raise SurrealError(f"no process of run {client.run} is on this machine; call this where they are")
    roots = roots_of(names)
    with tempfile.TemporaryDirectory(prefix="surreal-profile-") as folder:
        files = [Path(folder) / f"{pid}.json" for pid in roots]
        commands = [
            [*_command(file, rate), "--duration", str(max(1, round(seconds))), "--pid", str(pid)]
            for file, pid in zip(files, roots, strict=True)
        ]
        running = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for each in commands]
        try:
            for process in running:
                _, complaint = process.communicate()
                if process.returncode:
                    raise _failed(complaint.decode(errors="replace"))
        finally:
            for process in running:
                _end(process)
        return read_events((json.loads(file.read_bytes()) for file in files), names)


def record_start(
    target: str, overrides: Sequence[str], *, seconds: float, rate: int, options: Sequence[str] = ()
) -> Recording:
    """Start a run that ends after `seconds`, and record all of its processes from the start, `rate` times a second.
    Raises `SurrealError` if py-spy is missing, or the run did not begin to learn.
    """
    settings = [part for text in (f"run.max_time_s={seconds:g}", *overrides) for part in ("--set", text)]
    with tempfile.TemporaryDirectory(prefix="surreal-profile-") as folder:
        file = Path(folder) / "events.json"
        run = [sys.executable, "-m", "surreal", "run", target, *settings, *options]
        status = subprocess.run([*_command(file, rate), "--", *run], check=False).returncode
        if not file.exists():
            raise SurrealError(f"the run was not recorded: py-spy ended with status {status}")
        recording = read_events([json.loads(file.read_bytes())], {})
    # py-spy ends well also if the run fails.
    if not {"learner", "parameter server"} & set(recording.names.values()):
        raise SurrealError("the run ended before it could learn; its own message, above, has the reason")
    return recording


def roots_of(pids: Iterable[int]) -> list[int]:
    """Return the processes to attach to. The others are started by these, and come with them, on the same clock."""
    starters = {_starter(pid) for pid in pids}
    return sorted(pid for pid in starters if not starters & _ancestors(pid))


def _starter(pid: int) -> int:
    """Return the Python program that started a process, such as the run's launcher; else the process itself."""
    try:
        parent = psutil.Process(pid).parent()
        return pid if parent is None or not Path(parent.exe()).name.startswith("python") else parent.pid
    except psutil.Error:  # it has ended meanwhile, or is another user's
        return pid


def _ancestors(pid: int) -> set[int]:
    try:
        return {parent.pid for parent in psutil.Process(pid).parents()}
    except psutil.Error:
        return set()


def _end(sampler: subprocess.Popen[bytes]) -> None:
    """End py-spy in order: it may have stopped its process for a moment, and lets it run again at SIGINT."""
    if sampler.poll() is None:
        sampler.send_signal(signal.SIGINT)
        try:
            sampler.wait(5.0)
        except subprocess.TimeoutExpired:
            sampler.kill()
            sampler.wait()


def _command(file: Path, rate: int) -> list[str]:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise SurrealError(f"surreal profile needs py-spy, which is not installed; run: {install_command('profile')}")
    # Idle threads as well: without them, py-spy's timeline shows a thread that waits in the function before.
    options = ["--idle", "--subprocesses", "--format", "chrometrace", "--rate", str(rate)]
    return [program, "record", *options, "--output", str(file)]


def _failed(complaint: str) -> SurrealError:
    reason = next((line for line in complaint.splitlines() if "rror" in line or "denied" in line), complaint.strip())
    if "ermission" in complaint:
        reason += "; run it as root, or start the run with `surreal profile PRESET`, whose children may be looked into"
    return SurrealError(f"py-spy could not record the run: {reason}")
