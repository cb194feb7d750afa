"""The primary of a Redis that Sentinels watch: its address, asked again whenever a connection to it breaks.

Sentinels are asked with the TLS options of the address, and with the user and password of
`$SURREAL_REDIS_SENTINEL_USER` and `$SURREAL_REDIS_SENTINEL_PASSWORD` (or `..._PASSWORD_FILE`), because theirs are
usually not those of the servers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel

from surreal.base.system.files import secret_of

USER_VARIABLE = "SURREAL_REDIS_SENTINEL_USER"
#: With "_FILE": the file that contains it.
PASSWORD_VARIABLE = "SURREAL_REDIS_SENTINEL_PASSWORD"  # noqa: S105 - the name of a variable


class SentinelMap:
    """Finds the primary of a service, as the Sentinels last named it. Thread-safe; the constructor does not connect.

    Args:
        sentinels: (host, port) of each Sentinel.
        service: name under which they watch the primary.
        connection_class: class of connections to the servers; Sentinels take TLS if these do.
        options: options of the servers' connections, of which Sentinels get timeouts and certificates.

    Raises:
        ValueError: the file with the Sentinels' password cannot be read.
    """

    def __init__(
        self,
        sentinels: Sequence[tuple[str, int]],
        service: str,
        connection_class: type[Connection],
        options: Mapping[str, Any],
    ) -> None:
        common = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))}
        common |= {"ssl": issubclass(connection_class, SSLConnection), "protocol": 2, "driver_info": None}
        common |= {"username": os.environ.get(USER_VARIABLE), "password": secret_of(os.environ, PASSWORD_VARIABLE)}
        self._service = service
        self._sentinel = Sentinel(sentinels, sentinel_kwargs=common)  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._primary: tuple[str, int] | None = None

    def primary_of(self, hash_slot: int) -> tuple[str, int]:  # all of them are there
        """Return host and port of the primary.

        Raises:
            redis.exceptions.ConnectionError: no Sentinel answers, or none knows a primary that is up.
        """
        with self._lock:
            if self._primary is None:
                try:
                    host, port = self._sentinel.discover_master(self._service)  # type: ignore[no-untyped-call]
                except ResponseError as error:  # it wants a password, or is not a Sentinel
                    raise RedisConnectionError(f"a Sentinel does not name the primary: {error}") from error
                self._primary = str(host), int(port)
            return self._primary

    def forget(self) -> None:
        """Ask the Sentinels before the next connection, because the last one broke."""
        self._primary = None

    def close(self) -> None:
        """Close the connections to the Sentinels; the next use connects again."""
        for sentinel in self._sentinel.sentinels:
            sentinel.close()
