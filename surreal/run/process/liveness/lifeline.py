"""The lifeline: a role process ends with the launcher that started it, however that ends.

The launcher names itself in an environment variable. When it is gone, its child gets SIGTERM and drains, as far as
Redis is still there. A child that takes too long ends itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from surreal.base.system.process import die_with_parent

PARENT_VARIABLE = "SURREAL_PARENT_PID"

#: Processes of a run share the cores: more threads in each would only wait for each other. If a process has several
#: anyway, waiting threads must not spin: two spinning threads made updates five times slower next to another process.
_SHARED_CORES = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_GRACE_S = 15.0
_POLL_INTERVAL_S = 0.5


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a child that must end with this process."""
    return {**_SHARED_CORES, **os.environ, PARENT_VARIABLE: str(os.getpid()), **added}


def follow_parent() -> None:
    """End with the launcher, if one started this process; called after signal handlers are installed."""
    # Removed, because this process's children have another parent.
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
