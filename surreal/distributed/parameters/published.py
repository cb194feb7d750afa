"""Reads what is published under a policy's name: for listeners, and for a broadcaster that goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.parameters.encoding import DEFAULT_MAX_BYTES
from surreal.distributed.parameters.parts import MAX_PARTS, fetch_parts, part_names
from surreal.errors import CodecError

_FETCH_ATTEMPTS = 5


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
    blob: bytes


class PublishedReader:
    """Reads one policy's parameters; every method may be repeated, so it can run under `client.retry`.

    Args:
        client: of the run, at the parameter server.
        keys: of the policy.
        max_bytes: of parameters that are accepted.
    """

    def __init__(self, client: RedisClient, keys: PolicyKeys, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._client = client
        self._keys = keys
        self._max_bytes = max_bytes

    def standing(self) -> Standing:
        """Look at what is published, how long ago, and whether a learner is at it."""
        version, published_s = self._client.execute("HMGET", self._keys.params, "version", "published_s")
        is_held = bool(self._client.execute("EXISTS", self._keys.lease))
        try:
            number, published = _to_int(version, 0, 2**53), _to_int(published_s, 0, 2**53)
        except CodecError:  # who reads the parameters refuses them in words
            return Standing(0, None, is_held)
        if not number or not published:
            return Standing(number, None, is_held)
        now, _ = self._client.redis.time()  # of the same clock
        return Standing(number, float(max(0, now - published)), is_held)

    def newest(self, is_known: Callable[[int, str], bool] | None = None) -> Published | None:
        """Read the newest parameters; None if there are none, or `is_known(version, epoch)` says that we have them.

        Raises:
            CodecError: they are too large, or are none.
        """
        for _ in range(_FETCH_ATTEMPTS):
            version, epoch = _decode_head(*self._client.execute("HMGET", self._keys.params, "version", "epoch"))
            if version == 0 or (is_known is not None and is_known(version, epoch)):
                return None
            fields = ("version", "epoch", "id", "message", "parts", "data")
            values: list[bytes | None] = self._client.execute("HMGET", self._keys.params, *fields)
            version, epoch = _decode_head(*values[:2])
            publication, message, data = values[2], values[3] or b"", values[5]
            parts = _to_int(values[4], 0, MAX_PARTS)
            if publication is None or data is None:
                continue  # emptied in between
            blob = data if parts == 0 else self._fetch_parts(publication, parts)
            if blob is not None:
                return Published(version, epoch, message.decode(errors="replace"), blob)
        return None  # replaced faster than we read; the next notice is on its way

    def _fetch_parts(self, publication: bytes, count: int) -> bytes | None:
        name = publication.decode("ascii", errors="replace")
        if not name.isalnum() or len(name) > 64:
            raise CodecError(f"parameters have the impossible id {name[:64]!r}")
        return fetch_parts(self._client, part_names(self._keys, name, count), self._max_bytes)


def _decode_head(version: bytes | None, epoch: bytes | None) -> tuple[int, str]:
    if version is None:
        return 0, ""
    return _to_int(version, 1, 2**53), (epoch or b"").decode("ascii", errors="replace")


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
