"""The guard: a process that undoes the disturbances of a chaos process that died. `processes.Guard` starts this file.

    python guard.py < a pipe of chaos

After a line `+ SIGNAL PID START`, the process PID gets the signal when the pipe ends; the same line with `-` cancels
that. The kernel closes the pipe however chaos ends. START distinguishes a process from a later one with the same id.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main() -> int:
    """Wait for the end of the pipe, then send the signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    open_remedies: dict[str, None] = {}
    for line in sys.stdin:
        sign, _, remedy = line.rstrip("\n").partition(" ")
        if not line.endswith("\n"):
            break  # chaos died while it wrote the line
        if sign == "+":
            open_remedies[remedy] = None
        else:
            open_remedies.pop(remedy, None)
    for remedy in open_remedies:
        wanted, pid, start = (int(word) for word in remedy.split())
        if start_of(pid) == start:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, wanted)
    return 0


def start_of(pid: int) -> int:
    """Return a process's start, in ticks since the machine's; 0 if the kernel does not know, -1 for no process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except FileNotFoundError:
        return -1 if Path("/proc/self").exists() else 0
    except (OSError, ValueError, IndexError):
        return -1


if __name__ == "__main__":
    sys.exit(main())
