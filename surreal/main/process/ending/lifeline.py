"""How a role process ends with the launcher that started it, however that one ends.

The launcher names itself in an environment variable. When it is gone, the child gets SIGTERM and so drains, as far as
Redis is still there; what then takes too long is ended for good.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from surreal.utils.process import die_with_parent

PARENT_VARIABLE = "SURREAL_PARENT_PID"

_GRACE_S = 15.0
_POLL_INTERVAL_S = 0.5


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
