"""Run a program that ends with its owner, however that dies. It runs as a file and imports nothing of Surreal.

    python owned_exec.py exec OWNER_PID PROGRAM ARGS...    Linux: asks the kernel for SIGTERM, then becomes the program
    python owned_exec.py watch OWNER_PID PROGRAM ARGS...   elsewhere: stays, and checks its parent 5 times a second

With `exec`, the signal follows the *thread* that spawned it, so `EmbeddedRedis` uses it from the main thread only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

_PR_SET_PDEATHSIG = 1
_POLL_INTERVAL_S = 0.2
_TERMINATE_TIMEOUT_S = 10.0


def main(argv: list[str]) -> int:
    """Run `argv[2:]` for the owner `argv[1]` in the mode `argv[0]`; return the exit status."""
    mode, owner, command = argv[0], int(argv[1]), argv[2:]
    if mode == "exec":
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        if os.getppid() != owner:  # it died before prctl
            return 0
        os.execv(command[0], command)
    return _watch(owner, command)


def _watch(owner: int, command: list[str]) -> int:
    is_asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_asked
        is_asked = True

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    program = subprocess.Popen(command)
    while program.poll() is None and not is_asked and os.getppid() == owner:
        time.sleep(_POLL_INTERVAL_S)
    program.terminate()
    try:
        return program.wait(_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
