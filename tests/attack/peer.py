"""A peer of a run that writes impossible values into all that its user of Redis may write, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from surreal.distributed.connection.keys import kind_pattern
from surreal.distributed.connection.rights import CHANNELS, User

VALUES: dict[str, bytes] = {
    "2^31": b"2147483648",
    "2^53": b"9007199254740992",
    "-1": b"-1",
    "NaN": b"NaN",
    "1e308": b"1e308",
    "64 KB": b"x" * 65_536,
    "nested": b"[" * 5_000 + b"]" * 5_000,
}
#: The run is to end, which any of its processes may ask for; who it is, is its own; and the list of all runs.
SPARED = {"stop", "surreal:runs"}
_WRITES = ("hset", "set", "setex", "xadd", "rpush", "hincrby")


class Peer:
    """Writes as one user.

    Args:
        user: whose rights it has.
        redis: logged in as that user.
        administrator: looks what there is.
        run: id of the run.
    """

    def __init__(self, user: User, redis: Redis, administrator: Redis, run: str) -> None:
        self._redis, self._administrator, self._run = redis, administrator, run
        commands = user.commands()
        kinds = sorted(set().union(*(commands.get(name, ()) for name in _WRITES)) - SPARED - set(CHANNELS))
        self.rights = {kind: [name for name in _WRITES if kind in commands.get(name, ())] for kind in kinds}
        self.written: list[str] = []

    def attack(self, kind: str, values: dict[str, bytes]) -> None:
        """Write values into the keys of a kind; at most three keys, the first ones."""
        for key in sorted(self._administrator.scan_iter(kind_pattern(kind, self._run)))[:3]:
            for name in self.rights[kind]:
                for label, value in values.items():
                    # What the run has removed meanwhile, and what a key of another type refuses, is no write.
                    with suppress(ResponseError):
                        self._write(name, key, value, f"{name} {key.decode()} {label}")

    def _write(self, name: str, key: bytes, value: bytes, what: str) -> None:
        try:
            for arguments in self._calls(name, key, value):
                self._redis.execute_command(name, key, *arguments)
                self.written.append(what)
        except NoPermissionError as error:
            raise AssertionError(f"{what}: {error}") from error

    def _calls(self, name: str, key: bytes, value: bytes) -> Iterator[list[Any]]:
        kind = self._administrator.type(key)
        if name in ("hset", "hincrby") and kind == b"hash":
            fields: Any = self._administrator.hgetall(key)
            for field, old in sorted(fields.items()):
                number = 2**62 if name == "hincrby" else value
                yield from ([field, new] for new in ([number] if name == "hincrby" else spoiled(old, value)))
        elif name == "set" and kind == b"string":
            old = self._administrator.get(key)
            yield from ([new, "PX", 60_000] for new in spoiled(old or b"", value))  # type: ignore[arg-type]
        elif name == "setex":
            yield [60, value]
        elif name == "rpush":
            yield [value]
        elif name == "xadd":
            entries: Any = self._administrator.xrevrange(key, count=1)
            for _, fields in entries:
                for field, old in fields.items():
                    for new in spoiled(old, value):
                        yield ["*", *(part for each in {**fields, field: new}.items() for part in each)]


def spoiled(old: bytes, value: bytes) -> Iterator[bytes]:
    """Give the value, and what was there with the value in each place of its JSON."""
    yield value
    try:
        content = json.loads(old)
    except (ValueError, RecursionError):
        return
    if not isinstance(content, dict | list):
        return
    text = value.decode()
    mark = "\x00here"
    for holder, place in list(_places(content, 3)):
        kept, holder[place] = holder[place], mark
        with_mark = json.dumps(content)
        holder[place] = kept
        quoted = json.dumps(text)
        for form in {text, quoted}:
            yield with_mark.replace(json.dumps(mark), form).encode()


def _places(content: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    """Give each place in nested lists and dicts, down to a depth."""
    if depth and isinstance(content, dict | list):
        for place in content if isinstance(content, dict) else range(min(len(content), 3)):
            yield content, place
            yield from _places(content[place], depth - 1)


def connect(address: str, name: str, password: str) -> Redis:
    """Log in as a user."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    client = Redis(host, int(port), username=name, password=password)
    with suppress(RedisError):
        client.ping()
    return client
