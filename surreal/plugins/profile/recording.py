"""Recordings by py-spy: it samples the Python stacks of processes from outside, so a run needs no change for it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from surreal.base.errors import SurrealError
from surreal.base.system.program import install_command
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.profile.timeline import Recording, read_events
from surreal.run.view.reader import RunReader


def record_run(client: RedisClient, *, seconds: float, rate: int) -> Recording:
    """Record the processes of a run that are on this machine.

    Raises:
        SurrealError: none are here, or py-spy is missing or may not look into them.
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

    Raises:
        SurrealError: py-spy is missing, or the run did not begin to learn.
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
