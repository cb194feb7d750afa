"""Lifeline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from surreal.base.system.process import die_with_parent

PARENT_VARIABLE = "SURREAL_PARENT_PID"

#: Processes of a run share the cores: more threads in each would only make them wait for each other. Where one has
#: several all the same, those that wait must not keep a core busy: two that do took five times as long for an update
#: beside another process.
_SHARED_CORES = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_GRACE_S = 15.0
_POLL_INTERVAL_S = 0.5


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of a child of this process, which is to end with it."""
    return {**_SHARED_CORES, **os.environ, PARENT_VARIABLE: str(os.getpid()), **added}


def follow_parent() -> None:
    """End with the launcher, if one started this process; call it once the signal handlers are in place."""
    # Not for this process's own children: their parent is another.
    text = os.environ.pop(PARENT_VARIABLE, "")
    if not text.isdigit():
        return
    parent = int(text)
    die_with_parent(signal.SIGTERM, parent_pid=parent)
    threading.Thread(target=_end_for_good, args=(parent,), name="lifeline", daemon=True).start()


def _end_for_good(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL_S)
    time.sleep(_GRACE_S)
    os._exit(1)
