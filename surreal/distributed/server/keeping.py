"""`Keeper`: starts a redis-server again that died, unless it dies too often."""

from __future__ import annotations

import logging

from surreal.base.errors import RedisUnavailableError
from surreal.base.liveness.health import RecentDeaths
from surreal.distributed.server.embedded import EmbeddedRedis

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps a server alive; its owner calls `keep` again and again.

    Args:
        server: that was started.
        restart_limit: deaths within a minute that are forgiven, >= 0.
        advice: what a person may do where it dies too often.
    """

    def __init__(self, server: EmbeddedRedis, restart_limit: int, *, advice: str = "see its log") -> None:
        self._server = server
        self._restart_limit = restart_limit
        self._advice = advice
        self._deaths = RecentDeaths()

    def keep(self) -> None:
        """Start the server again, at the same address, if it died.

        Raises:
            RedisUnavailableError: it died too often.
        """
        if self._server.is_alive:
            return
        if self._deaths.add() > self._restart_limit:
            times = f"{len(self._deaths)} times within {self._deaths.window_s:.0f} s"
            raise RedisUnavailableError(f"redis-server ended {times}; {self._advice}")
        logger.warning("redis-server ended; starting it again")
        self._server.restart()
