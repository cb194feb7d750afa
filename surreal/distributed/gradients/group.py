"""`ServerGroup`: several parameter servers that go in step, each with a part of the model.

All take the same gradients in the same order, so they agree as long as none dies. One that restarts begins a new
*formation*: the others notice at their next call, and all go on from the newest state that every one of them has.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from surreal.distributed.connection.client import RedisClient


class Formation(NamedTuple):
    """What the servers of a group agreed on."""

    name: str  #: random; part of the names of states that are reached in it
    state: str  #: to go on from, one of those that each of them named; "" if they have none in common
    version: int  #: the largest that any of them knows: the next one must be larger


class ServerGroup:
    """One server's membership; used by one thread.

    Args:
        client: as the gradient queue's.
        policy: name of the parameters.
        shard: number of this server.
        shards: number of servers, >= 2.
        timeout_s: longest wait for the other servers, s: they may be starting.
        num_replay_shards: as the gradient queue's.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        shard: int,
        shards: int,
        policy: str = "default",
        timeout_s: float = 300.0,
        num_replay_shards: int = 1,
    ) -> None:
        raise NotImplementedError

    def join(
        self, states: Sequence[str], version: int, *, is_new: bool, stop: threading.Event | None = None
    ) -> Formation:
        """Wait until all servers are here, and agree. What waits in the queues is dropped, and counted.

        Args:
            states: names of states that this server can go on from, newest last, such as `updates:formation`.
            version: the largest that it knows.
            is_new: whether this process has not been in a formation yet, so that a new one begins.
            stop: ends the wait with `StoppedError`.
        """
        raise NotImplementedError

    def gather(self, values: bytes) -> list[bytes]:
        """Exchange values: the n-th call of each server gives the values of all n-th calls, in the servers' order.

        Raises:
            GroupChangedError: a server has restarted.
        """
        raise NotImplementedError
