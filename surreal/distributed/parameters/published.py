"""Reads what is published under a policy's name: for listeners, and for a broadcaster that goes on from it.

Several parameter servers publish a part each, under names of their own, and one version after the other in step. So at
any moment the newest of one is the newest or the last but one of each other, and is still there in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError
from torch import Tensor

from surreal.base.errors import CodecError
from surreal.distributed.connection.access.spoiled import clear_error
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.direct import DirectConnection
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.parameters.encoding import DEFAULT_MAX_BYTES, decode_parameters
from surreal.distributed.parameters.parts import MAX_PARTS, Memory, fetch_parts, part_names

_FETCH_ATTEMPTS = 5
_HEAD = ("version", "epoch", "previous_version")
_ALL = (*_HEAD, "id", "message", "parts", "previous", "previous_parts", "data")
_ID = re.compile(rb"[A-Za-z0-9]{1,64}")
#: Parts that were read before it was known that they are wanted, by name.
_Ahead = Mapping[str, bytes | bytearray | None]


class Standing(NamedTuple):
    """What stands in Redis, without the parameters themselves."""

    version: int  #: 0: nothing is published
    age_s: float | None  #: since it was published; None if Redis does not tell
    is_held: bool  #: whether a broadcaster holds the policy's lease

    def __str__(self) -> str:
        """Such as `version 50, published 12 min ago`."""
        return f"version {self.version}" + (
            f", published {_show_age(self.age_s)} ago" if self.age_s is not None else ""
        )


class Published(NamedTuple):
    """Parameters as they were published."""

    version: int
    epoch: str
    message: str
    blobs: tuple[bytes | bytearray, ...]  #: one a server

    def decode(self, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of all servers by name, and the model's header.

        Raises:
            CodecError: see `decode_parameters`.
        """
        tensors: dict[str, Tensor] = {}
        header: dict[str, Any] = {}
        for blob in self.blobs:
            found, header = decode_parameters(blob, max_bytes=max_bytes)
            tensors.update(found)
        return tensors, header


class PolicyPart(NamedTuple):
    """What one of several parameter servers publishes."""

    server: int  #: its number
    servers: int
    names: frozenset[str]  #: in `Module.tensors()`

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This part of all tensors."""
        return {name: tensor for name, tensor in tensors.items() if name in self.names}


def part_keys(client: RedisClient, policy: str, number: int) -> list[PolicyKeys]:
    """The names under which each of `number` servers publishes its part of a policy."""
    policies = [policy] if number == 1 else [f"{policy}.{i}of{number}" for i in range(number)]
    return [client.policy_keys(each) for each in policies]


class PublishedReader:
    """Reads one policy's parameters; every method may be repeated, so it can run under `client.retry`.

    Args:
        client: of the run, at the Redis server of the parameters.
        keys: of the policy's parts, one for each parameter server.
        max_bytes: of parameters that are accepted.
        uses_memory_again: what `newest` gave is good only until it is called again.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: Sequence[PolicyKeys],
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        uses_memory_again: bool = False,
    ) -> None:
        self.notices = [each.notice for each in keys]  #: channels where new versions are told
        self._client = client
        self._keys = keys
        self._max_bytes = max_bytes
        self._memory = Memory(max_bytes, is_used_again=uses_memory_again)

    def is_held(self) -> bool:
        """Whether a broadcaster holds the policy's lease."""
        return any(self._client.execute("EXISTS", each.lease) for each in self._keys)

    def standing(self) -> Standing:
        """Look at what is published, how long ago, and whether a learner is at it."""
        published_s = self._client.execute("HGET", self._keys[0].params, "published_s")
        is_held = self.is_held()
        try:
            version = str(self._common(self._snapshot(_HEAD))[0]).encode()
            number, published = _to_int(version, 0, 2**53), _to_int(published_s, 0, 2**53)
        except CodecError:  # who reads the parameters refuses them in words
            return Standing(0, None, is_held)
        if not number or not published:
            return Standing(number, None, is_held)
        now, _ = self._client.redis.time()  # of the same clock
        return Standing(number, float(max(0, now - published)), is_held)

    def newest(self, is_known: Callable[[int, str], bool] | None = None, *, notice: bytes = b"") -> Published | None:
        """Read the newest parameters; None if there are none, or `is_known(version, epoch)` says that we have them.

        Args:
            is_known: asked before parameters are read.
            notice: that told of them, if one did: what it names is read in the same round trip.

        Raises:
            CodecError: they are too large, or are none.
        """
        connection = DirectConnection(self._client)
        try:
            for _ in range(_FETCH_ATTEMPTS):
                parts, ahead = self._look(connection, notice)
                version, epoch = self._common(parts)
                if version == 0 or (is_known is not None and is_known(version, epoch)):
                    return None
                pairs = zip(self._keys, parts, strict=True)
                blobs = [self._blob(connection, keys, part, version, ahead) for keys, part in pairs]
                found = tuple(blob for blob in blobs if blob is not None)
                if len(found) == len(parts):
                    message = parts[0]["message"] or b""
                    return Published(version, epoch, message.decode(errors="replace"), found)
                notice = b""
            return None  # replaced faster than we read; the next notice is on its way
        finally:
            connection.release()

    def _look(self, connection: DirectConnection, notice: bytes) -> tuple[list[dict[str, bytes | None]], _Ahead]:
        """All of each part but what stands beside it, which is read if a notice has named it."""
        if len(self._keys) > 1:
            return self._snapshot(_ALL), {}
        _, told, count = (*notice.split(b" "), b"", b"", b"")[:3]
        names = part_names(self._keys[0], told.decode(), 1) if _ID.fullmatch(told) and count == b"1" else []
        reads = [("GET", name) for name in names]
        head = ("HMGET", self._keys[0].params, *_ALL)
        values, *found = connection.ask(head, *reads, into=self._memory.free())
        return [dict(zip(_ALL, values, strict=True))], dict(zip(names, found, strict=True))

    def _snapshot(self, fields: Sequence[str]) -> list[dict[str, bytes | None]]:
        """These fields of each part, as they were at one moment."""
        if len(self._keys) == 1:
            values = self._client.execute("HMGET", self._keys[0].params, *fields)
            return [dict(zip(fields, values, strict=True))]
        pipeline = self._client.redis.pipeline()
        for keys in self._keys:
            pipeline.hmget(keys.params, fields)
        try:
            found = pipeline.execute()
        except ResponseError as error:  # of a transaction, whose errors come inside of its reply
            raise clear_error(error) from error
        return [dict(zip(fields, values, strict=True)) for values in found]

    def _common(self, parts: Sequence[Mapping[str, bytes | None]]) -> tuple[int, str]:
        """The newest version that all parts have, and their epochs; (0, "") without one."""
        # One server alone has no need of the last but one, and may not have it in parts.
        fields = ("version", "previous_version")[: len(parts)]
        versions = [{_to_int(part[field], 0, 2**53) for field in fields} for part in parts]
        version = max(set[int].intersection(*versions), default=0)
        epoch = "+".join((part["epoch"] or b"").decode("ascii", errors="replace") for part in parts)
        return (version, epoch) if version else (0, "")

    def _blob(
        self,
        connection: DirectConnection,
        keys: PolicyKeys,
        part: Mapping[str, bytes | None],
        version: int,
        ahead: _Ahead,
    ) -> bytes | bytearray | None:
        """The bytes of a part's version; None if they are replaced, or emptied in between."""
        if _to_int(part["version"], 0, 2**53) == version:
            publication, count, data = part["id"], _to_int(part["parts"], 0, MAX_PARTS), part["data"]
        else:
            publication, count, data = part["previous"], _to_int(part["previous_parts"], 1, MAX_PARTS), b""
        if publication is None or data is None:
            return None
        if count == 0:
            return data
        if not _ID.fullmatch(publication):
            raise CodecError(f"parameters have the impossible id {publication[:64]!r}")
        names = part_names(keys, publication.decode(), count)
        found = ahead.get(names[0]) if count == 1 else None
        return fetch_parts(connection, names, self._max_bytes) if found is None else found


def _to_int(value: bytes | None, low: int, high: int) -> int:
    try:
        number = int(value or b"0")
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise CodecError(f"{str(value)[:40]} is not a number from {low} to {high}")
    return number


def _show_age(age_s: float) -> str:
    for unit, seconds in (("days", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
