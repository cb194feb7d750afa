"""Processes in namespaces: entering those of another process, finding the one inside, ending all of them.

`nsenter` and `unshare` fork where a PID namespace is involved, so that what runs inside is a child's child of what was
started. Whoever ends the first process of a PID namespace ends all of them: nothing can be left behind.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from functools import cache

import psutil

#: What every executor needs, with the Debian package that has it.
PROGRAMS = {
    "ip": "iproute2",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


@cache
def program(name: str) -> str:
    """Full path of a program, since that of a container's environment may be another one."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise FileNotFoundError(f"{name} is not installed; it comes with Debian's {PROGRAMS.get(name, name)}")
    return path


def entering(pid: int, *namespaces: str) -> list[str]:
    """The beginning of a command that is to run in some of a process's namespaces ("net", "pid", "mount", ...)."""
    return [program("nsenter"), f"--target={pid}", *(f"--{namespace}" for namespace in namespaces), "--"]


def start_holder(prefix: list[str], *namespaces: str, hostname: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that does nothing but hold new namespaces; returns what was started, and the process inside.

    It reads from a pipe that nobody writes to. When this Python ends, in whatever way, the pipe closes, the holder
    ends, and with it all processes in its PID namespace.
    """
    unshare = [program("unshare"), "--fork", *(f"--{namespace}" for namespace in namespaces)]
    hold = ["sh", "-c", 'hostname "$0"; echo; exec cat >/dev/null', hostname]
    process = subprocess.Popen(
        [*prefix, *unshare, *hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise OSError(f"cannot make namespaces: {' '.join(unshare)} ended with status {process.wait()}")
    inside = innermost(process, depth=2 if prefix else 1)
    assert inside is not None
    return process, inside


def innermost(process: subprocess.Popen[bytes], depth: int) -> int | None:
    """The process `depth` forks below `process`, or None if it is not there (any more, or yet)."""
    pid = process.pid
    for _ in range(depth):
        try:
            children = psutil.Process(pid).children()
        except psutil.NoSuchProcess:
            return None
        if not children:
            return None
        pid = children[0].pid
    return pid


def end_holder(process: subprocess.Popen[bytes]) -> None:
    """End a holder, and with it all that runs in its namespaces."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that came of it, and wait until they are gone.

    One that has forked ends by itself when its child has: killed before, it would leave the child to the first process
    of the machine, which may let it be a zombie for seconds, and a namespace with a zombie does not end.
    """
    if process.poll() is not None:
        return  # and its number may be another one's by now
    family = psutil.Process(process.pid).children(recursive=True)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    if not family:
        process.kill()
    process.wait()
    while any(_is_running(member) for member in family):
        time.sleep(0.001)


def _is_running(process: psutil.Process) -> bool:
    """Whether it runs; there may be nobody to ask how it ended."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
