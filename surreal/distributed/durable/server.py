"""Calls of one `DurableReplay` to its Redis, repeated while the server is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.wire import STAGE_TTL_S, load_script

#: Group of the readers of the stream; its consumers are the readers.
GROUP = "readers"
T = TypeVar("T")


class DurableServer:
    """The stream and the counts of one replay; calls are repeated for `timeout_s`."""

    def __init__(self, client: RedisClient, timeout_s: float) -> None:
        self.client, self.timeout_s = client, timeout_s
        self.stream, self.meta = client.run_keys.durable_stream, client.run_keys.durable_meta

    def run_script(self, name: str, arguments: Sequence[Any], what: str) -> Any:
        keys = (self.stream, self.meta)
        return self.retry(lambda: self.client.run_script(name, keys, arguments), what)

    def put(self, put_id: str, data: bytes, arguments: Sequence[Any]) -> bytes:
        """Store the packed rows of a put, and run the script that makes them a part of the replay, in one round trip.

        Passing them through the script would copy them twice more.
        """
        staged, script = self.client.run_keys.durable_staged(put_id), load_script("durable_put")
        keys = (self.stream, self.meta, staged, self.client.run_keys.durable_rows(put_id))

        def act() -> bytes:
            pipeline = self.client.redis.pipeline(transaction=False)
            pipeline.set(staged, data, ex=STAGE_TTL_S)
            pipeline.evalsha(script.sha1, len(keys), *keys, *arguments)
            stored, answer = pipeline.execute(raise_on_error=False)
            if isinstance(stored, Exception):
                raise stored
            if isinstance(answer, NoScriptError):
                answer = self.client.run_script("durable_put", keys, arguments)
            if isinstance(answer, Exception):
                raise answer
            return bytes(answer)

        answer = self.retry(act, "put rows")
        return self.put(put_id, data, arguments) if answer == b"gone" else answer

    def read_rows(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[bytes | None]:
        """Read the packed rows of entries; None where they were consumed or evicted meanwhile."""
        if not entries:
            return []
        keys = [fields[b"key"] for _, fields in entries]
        return self.retry(lambda: self.client.execute("MGET", *keys), "read rows")

    def retry(self, operation: Callable[[], T], what: str) -> T:
        """Call an operation that may be executed twice until Redis answers."""
        return self.client.retry(operation, what=what, timeout_s=self.timeout_s)

    def get(self, *names: bytes | str) -> list[bytes | None]:
        return self.retry(lambda: self.client.execute("HMGET", self.meta, *names), "read counts")

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
