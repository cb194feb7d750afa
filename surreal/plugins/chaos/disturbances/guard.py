"""The process of the guard: undoes the disturbances of a chaos process that died. It runs as a file and imports
nothing.

    python guard.py < a pipe of chaos

A line `+ SIGNAL PID START` states which signal a process gets if the pipe ends now, and the same line with `-` that
this is no longer so. The kernel closes the pipe however chaos ends. START tells a process from another one that got its
id later. `guarding.Guard` starts it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main() -> int:
    """Wait for the end of the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    open_remedies: dict[str, None] = {}
    for line in sys.stdin:
        sign, _, remedy = line.rstrip("\n").partition(" ")
        if not line.endswith("\n"):
            break  # its writer died in the middle of it
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
    """When a process began, in ticks since the machine did; 0 where the kernel does not tell, -1 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except FileNotFoundError:
        return -1 if Path("/proc/self").exists() else 0
    except (OSError, ValueError, IndexError):
        return -1


if __name__ == "__main__":
    sys.exit(main())
