"""`Keeper`: starts a redis-server again that died, but not for ever."""

from __future__ import annotations

import logging

from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.errors import RedisUnavailableError

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps a server alive; its owner calls `keep` again and again.

    Args:
        server: that was started.
        restart_limit: how often it is started again, >= 0.
        advice: what a person may do where it dies too often.
    """

    def __init__(self, server: EmbeddedRedis, restart_limit: int, *, advice: str = "see its log") -> None:
        self._server = server
        self._restart_limit = restart_limit
        self._advice = advice
        self._restarts = 0

    def keep(self) -> None:
        """Start the server again, at the same address, if it died.

        Raises:
            RedisUnavailableError: it died too often.
        """
        if self._server.is_alive:
            return
        if self._restarts >= self._restart_limit:
            raise RedisUnavailableError(f"redis-server ended {self._restarts + 1} times; {self._advice}")
        self._restarts += 1
        logger.warning("redis-server ended; starting it again")
        self._server.restart()
