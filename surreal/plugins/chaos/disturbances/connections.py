"""All connections of a run are broken, again and again for a while, wherever each call happens to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil
from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError


class Cut(Disturbance):
    """CLIENT KILL, several times a second: who connects again is cut off again.

    A call that Redis has executed may lose its answer, so its caller repeats it. Nothing has to be undone.

    Args:
        target: name of the server.
        client: the connection of chaos, which stays.
        is_exclusive: whether all other connections are the run's; else those of `pids` are found by their ports.
        pids: gives the processes of the run on this machine.
    """

    kind = Kind.CUT

    def __init__(
        self, target: str, client: RedisClient, *, is_exclusive: bool, pids: Callable[[], Iterable[int]]
    ) -> None:
        super().__init__(target)
        self._client = client
        self._is_exclusive = is_exclusive
        self._pids = pids
        self._number = 0

    def begin(self) -> None:
        try:
            self._cut()
        except RedisError as error:
            raise NotDoneError(f"Redis does not answer: {error}") from error

    def turn(self) -> None:
        with suppress(RedisError):
            self._cut()

    def _cut(self) -> None:
        if self._is_exclusive:
            for kind in ("normal", "pubsub"):
                self._number += int(self._client.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"))
        else:
            ours = _local_ports(self._pids())
            text: Any = self._client.execute("CLIENT", "LIST")
            for line in text.decode(errors="replace").splitlines():
                fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
                if fields.get("addr") in ours:
                    self._number += int(self._client.execute("CLIENT", "KILL", "ID", fields["id"]))
        self.detail = f"{self._number} connections"


def _local_ports(pids: Iterable[int]) -> set[str]:
    """Addresses that the connections of these processes come from, as Redis shows them."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections(kind="tcp"):
                if connection.raddr:
                    found.add(f"{connection.laddr.ip}:{connection.laddr.port}")
    return found
