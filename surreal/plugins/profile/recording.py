"""Recordings by py-spy: it samples the Python stacks of processes from outside, so a run needs no change for it."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Thread:
    """A thread while it was recorded."""

    pid: int
    number: int
    spans: list[tuple[float, Stack]] = field(default_factory=list)  #: seconds, and in which functions


@dataclass
class Recording:
    """Threads of all processes, and the events from which they were read.

    Attributes:
        threads: all threads.
        names: name of each process.
        events: py-spy's events, in Chrome's trace format.
    """

    threads: list[Thread]
    names: dict[int, str]
    events: list[dict[str, Any]]


def record_run(client: RedisClient, *, seconds: float, rate: int) -> Recording:
    """Record the processes of a run that are on this machine.

    Raises:
        SurrealError: none are here, or py-spy is missing or may not look into them.
    """
    beats = [beat for beat in RunReader(client).read().alive if beat.host == socket.gethostname()]
    names = {beat.pid: beat.name for beat in beats if psutil.pid_exists(beat.pid)}
    if not names:
        raise SurrealError(f"no process of run {client.run} is on this machine; call this where they are")
    # A process whose ancestor is recorded comes with it, on the same clock.
    roots = [pid for pid in names if not _ancestors(pid) & names.keys()]
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


def record_start(target: str, overrides: Sequence[str], *, seconds: float, rate: int) -> Recording:
    """Start a run that ends after `seconds`, and record all of its processes from the start.

    Raises:
        SurrealError: py-spy is missing, or the run did not start.
    """
    settings = [part for text in (f"run.max_time_s={seconds:g}", *overrides) for part in ("--set", text)]
    with tempfile.TemporaryDirectory(prefix="surreal-profile-") as folder:
        file = Path(folder) / "events.json"
        run = [sys.executable, "-m", "surreal", "run", target, *settings]
        status = subprocess.run([*_command(file, rate), "--", *run], check=False).returncode
        if not file.exists():
            raise SurrealError(f"the run was not recorded: py-spy ended with status {status}")
        recording = read_events([json.loads(file.read_bytes())], {})
    if status or not recording.threads:
        raise SurrealError(f"the run was not recorded: it ended with status {status}")
    return recording


def read_events(parts: Iterable[list[dict[str, Any]]], names: Mapping[int, str]) -> Recording:
    """Read py-spy's events: a function's begin (`ph` is B) and end (E), in microseconds of their part's clock."""
    events: list[dict[str, Any]] = []
    threads: dict[tuple[int, int], Thread] = {}
    stacks: dict[tuple[int, int], list[Frame]] = {}
    since: dict[tuple[int, int], float] = {}
    for part in parts:
        events += part
        stacks.clear()
        for event in part:
            key = event["pid"], event["tid"]
            thread = threads.setdefault(key, Thread(*key))
            stack, now = stacks.setdefault(key, []), event["ts"] / 1e6
            if stack and now > since[key]:
                thread.spans.append((now - since[key], tuple(stack)))
            since[key] = now
            if event["ph"] == "B":
                place = event["args"]
                stack.append(Frame(place["filename"].replace("\\", "/"), event["name"], place["line"] or 0))
            elif stack:
                stack.pop()
    found = [thread for thread in threads.values() if thread.spans]
    return Recording(found, _name_processes(found, names), events)


def write_timeline(recording: Recording, path: Path) -> None:
    """Write the events with the names of processes, compressed if the name ends in .gz."""
    titles = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{name} ({pid})"}}
        for pid, name in recording.names.items()
    ]
    text = json.dumps({"traceEvents": [*titles, *recording.events]}, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, 6) if path.suffix == ".gz" else text)


def _ancestors(pid: int) -> set[int]:
    try:
        return {parent.pid for parent in psutil.Process(pid).parents()}
    except psutil.Error:  # it has ended meanwhile
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
        called = (frame.file for _, stack in thread.spans for frame in stack if frame.function != "<module>")
        files.setdefault(thread.pid, set()).update(called)
    found: dict[int, str] = {}
    for pid in files:
        role = next((name for end, name in _ROLES if any(file.endswith(end) for file in files[pid])), "helper")
        number = sum(name.partition(" #")[0] == role for name in found.values())
        found[pid] = names.get(pid) or (f"{role} #{number}" if number else role)
    return found
