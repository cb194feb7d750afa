"""`OrphanReaper`: reaps adopted processes.

The launcher adopts what a killed process leaves behind: the ranks of a learner, the workers of an agent's environments.
These end by themselves, and would stay zombies until the launcher ends.
"""

from __future__ import annotations

import os
from contextlib import suppress


class OrphanReaper:
    """Reaps adopted children. Its owner polls all children that it started between two calls."""

    def __init__(self) -> None:
        self._seen = 0

    def reap(self) -> None:
        """Reap a child that had ended at the last call already, and was not polled since."""
        with suppress(ChildProcessError):  # there are no children
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            pid = 0 if found is None else found.si_pid
            if pid and pid == self._seen:
                os.waitpid(pid, os.WNOHANG)
            self._seen = pid
