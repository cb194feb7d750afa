"""Calls of one `DurableReplay` to its Redis, repeated while the server is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from surreal.distributed.connection.client import RedisClient

#: Group of the readers of the stream; its consumers are the readers.
GROUP = "readers"
T = TypeVar("T")


class DurableServer:
    """The stream and the counts of one replay.

    Args:
        client: its Redis and its name.
        timeout_s: how long calls are repeated, s.
    """

    def __init__(self, client: RedisClient, timeout_s: float) -> None:
        self.client, self.timeout_s = client, timeout_s
        self.stream, self.meta = client.run_keys.durable_stream, client.run_keys.durable_meta

    def run_script(self, name: str, arguments: Sequence[Any], what: str) -> Any:
        """Run a script that may be executed twice."""
        keys = (self.stream, self.meta)
        return self.retry(lambda: self.client.run_script(name, keys, arguments), what)

    def retry(self, operation: Callable[[], T], what: str) -> T:
        """Call an operation that may be executed twice until Redis answers."""
        return self.client.retry(operation, what=what, timeout_s=self.timeout_s)

    def get(self, *names: bytes | str) -> list[bytes | None]:
        """Read counts and states."""
        found: list[bytes | None] = self.retry(lambda: self.client.execute("HMGET", self.meta, *names), "read counts")
        return found

    def ask_group(self, *command: Any) -> Any:
        """Run a command of the group of readers once; the group is made if there are no rows yet."""
        try:
            return self.client.execute(*command)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            with suppress(ResponseError):  # another reader made it
                self.client.execute("XGROUP", "CREATE", self.stream, GROUP, "0", "MKSTREAM")
            return self.client.execute(*command)


def read_pairs(entries: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Read entries of a stream; those that were deleted have no fields."""
    return [(entry, fields or {}) for entry, fields in entries if entry]
