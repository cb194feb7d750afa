"""`WaitNotice`: a wait that lasts says what it is for, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: How long a wait may last without a word, s.
PATIENCE_S = 2.0
#: Between two notices of one owner, s: one that waits again and again does not fill the log.
_QUIET_S = 600.0


class WaitNotice:
    """Says what is waited for, as a warning, when that has taken two seconds.

        notice = WaitNotice(logger)
        while not is_there():
            notice.tell("waiting for the learner, at most %.0f s", timeout_s)
            time.sleep(0.1)

    Args:
        logger: of the module that waits.
        clock: seconds, monotonic.
    """

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_until_s = 0.0
        self.begin()

    def begin(self) -> None:
        """A wait begins; the first one does when this object is made."""
        self._quiet_until_s = max(self._quiet_until_s, self._clock() + PATIENCE_S)

    def tell(self, message: str, *args: object) -> None:
        """Say it, if it is time; called as long as the wait goes on."""
        if self._clock() >= self._quiet_until_s:
            self._quiet_until_s = self._clock() + _QUIET_S
            self._logger.warning(message, *args)
