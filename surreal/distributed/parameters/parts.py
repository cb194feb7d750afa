"""Parameters in parts, and the wait for the lease of a learner that published before.

A small blob goes as an argument of the publish script, into the policy's hash. Larger ones go in parts of 2 MB. A
part's key has the id of its publication. Parts are uploaded with an expiry, which the script removes when it publishes,
so a broadcaster that dies in between leaves nothing behind. The parts of a publication are removed at the next but one,
so a listener that is reading them has one more interval to finish.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError
from torch import Tensor

from surreal.base.errors import LeaseError, RedisUnavailableError
from surreal.base.system.logs import WaitNotice
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.holders import HolderWatch, holder_of
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.connection.retry import pause

#: Lifetime of uploaded parts before their publication, s; renewed during the upload.
UPLOAD_TTL_S = 120.0
#: How long an upload waits for room in a full Redis, s.
ROOM_TIMEOUT_S = 30.0
_ROOM_POLL_S, _LEASE_POLL_S = 0.5, 0.1
STOPPED = "stopped while publishing parameters"
#: Parts that an upload of several round trips sends in one of them, bytes.
_UPLOAD_BYTES = 64 << 20
#: Larger blobs go in parts: as an argument, they would be copied into Lua and back, and block the server meanwhile.
#: Smaller ones reach a listener in one round trip instead of two.
INLINE_BYTES = 128 << 10


def upload_parts(
    client: RedisClient, names: Sequence[str], parts: Sequence[memoryview], stop: threading.Event | None = None
) -> None:
    """Store parts that expire unless they are published; raises if Redis is away or full, or at `stop`."""
    ttl_ms = int(1000 * UPLOAD_TTL_S)
    deadline = time.monotonic() + ROOM_TIMEOUT_S
    number = max(1, _UPLOAD_BYTES // len(parts[0]))
    for start in range(0, len(parts), number):

        def upload(start: int = start) -> None:
            pipeline = client.redis.pipeline(transaction=False)
            for name in names[:start]:
                pipeline.pexpire(name, ttl_ms)
            for name, part in zip(names[start : start + number], parts[start : start + number], strict=True):
                pipeline.set(name, part, px=ttl_ms)
            pipeline.execute()

        while True:
            try:
                client.retry(upload, what="upload parameters", stop=stop)
                break
            except OutOfMemoryError as error:
                if time.monotonic() > deadline:
                    size = sum(map(len, parts))
                    message = f"Redis at {client.address} is full: no room for another {size} bytes of parameters"
                    message += "; raise its maxmemory, or lower replay.max_bytes"
                    raise RedisUnavailableError(message, address=client.address) from error
            pause(stop, _ROOM_POLL_S, STOPPED)


class PolicyPart(NamedTuple):
    """The part of a policy that one of several parameter servers publishes."""

    server: int  #: its number
    servers: int
    names: frozenset[str]  #: in `Module.tensors()`

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors.items() if name in self.names}


def part_keys(client: RedisClient, policy: str, number: int) -> list[PolicyKeys]:
    """Return the keys under which each of `number` servers publishes its part of a policy."""
    policies = [policy] if number == 1 else [f"{policy}.{i}of{number}" for i in range(number)]
    return [client.policy_keys(each) for each in policies]


class LeaseWait:
    """Waits for another learner's lease, at most for its length."""

    def __init__(self, lease_s: float, holder: str, notice: WaitNotice, stop: threading.Event | None) -> None:
        self._lease_s, self._holder, self._stop = lease_s, holder, stop
        self._wait_s = 0.0
        self.deadline_s = math.inf  #: end of the wait on the monotonic clock; infinite before it begins
        self.watch = HolderWatch(lease_s)
        self.notice = notice

    def until_void(self, token: str, left_ms: int, asked_at: float, refused: LeaseError) -> bytes:
        """Wait a moment; return the holder's token if it has died, else b"". When asked at `asked_at` (monotonic clock,
        s), Redis was to delete it in `left_ms`; negative: never. Raises `refused` when the wait is too long.
        """
        if self.watch.is_void(token, left_ms):
            return token.encode()
        if self.deadline_s == math.inf:
            # Its lease may be longer than this process's.
            self._wait_s = max(self._lease_s, holder_of(token, self._lease_s).lease_s) + _LEASE_POLL_S
            self.deadline_s = time.monotonic() + self._wait_s
            self.notice.begin()
        if asked_at > self.deadline_s:
            raise refused
        self.notice.tell("waiting until %s is gone, at most %.0f s", self._holder, self._wait_s)
        pause(self._stop, _LEASE_POLL_S, STOPPED)
        return b""
