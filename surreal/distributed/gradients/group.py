"""`ServerGroup`: several parameter servers that run in step, each with a part of the model.

All take the same gradients in the same order, so they agree as long as none dies. A server that restarts begins a new
*formation*: the others notice at their next call, and all resume from the newest state that every one of them has.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from surreal.base.errors import CodecError, GroupChangedError, StoppedError
from surreal.base.system.logs import WaitNotice
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.direct import DirectConnection
from surreal.distributed.gradients.store import GROUP_CHANGED, GradientHead, GradientStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MIN_PAUSE_S, _MAX_PAUSE_S, _NOTICE_PAUSE_S = 0.0002, 0.05, 0.04


class Formation(NamedTuple):
    """The agreement of the servers of a group."""

    name: str  #: random; part of the names of states that are reached in it
    state: str  #: newest state that all of them offered, to resume from; "" if there is none
    version: int  #: largest version that any of them knows: the next one must be larger


@dataclass(eq=False, repr=False)
class ServerGroup:
    """One server's membership; used by one thread."""

    client: RedisClient  #: client of the server of the replay's first shard
    _: KW_ONLY
    shard: int
    shards: int
    policy: str = "default"
    timeout_s: float = 300.0  #: longest wait for the other servers, s: they may be starting
    num_replay_shards: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.shards or self.shards < 2:
            raise ValueError(
                f"shard {self.shard} of {self.shards}; it must be 0 .. {self.shards - 1}, and a group has 2 or more"
            )
        self.formation = ""  #: name of the current formation; "" before the first
        self._store = GradientStore(self.client, self.policy, self.num_replay_shards)
        self._token = secrets.token_hex(8)
        self._gathered = 0
        self._stop: threading.Event | None = None
        self._notice = WaitNotice(logger)

    def join(
        self, states: Sequence[str], version: int, *, is_new: bool, stop: threading.Event | None = None
    ) -> Formation:
        """Wait until all servers have joined, and agree; raises `GroupChangedError` if the others do not come in time.
        Gradients in the queues are dropped.

        The states that this server can resume from are named newest last, such as `updates:formation`; `version` is the
        largest that it knows. A new formation must begin, `is_new`, if this process has not been in one yet, or differs
        from the others. `stop` ends this wait and those of `gather` with `StoppedError`.
        """
        self._stop = stop
        offer = json.dumps({"states": list(states), "version": version}).encode()
        new_name = secrets.token_hex(8)
        name, offers = self._join(new_name, is_new, self.formation, b"", "")
        while offers is None:
            # A server has begun a formation: until all have offered, nothing is queued.
            self._drop_queue()
            name, offers = self._wait_for(partial(self._offer, new_name, offer, name))
        self.formation, self._gathered = name, 0
        return _agree(name, [json.loads(found) for found in offers])

    def check(self) -> None:
        """Check that the formation is unchanged; raises `GroupChangedError` if a server has restarted."""
        state = self._store.client.retry(self._store.state, what="look at the group", stop=self._stop)
        if state.get("formation", b"").decode("ascii", "replace") != self.formation:
            raise GroupChangedError(GROUP_CHANGED)

    def gather(self, value: bytes) -> list[bytes]:
        """Exchange values: the n-th call returns every server's n-th value, in their order; raises as `join`."""
        self._gathered += 1
        return self._wait_for(
            partial(self._store.gather, self.formation, self._gathered, self.shard, self.shards, value)
        )

    def _join(
        self, new_name: str, begins: bool, former: str, offer: bytes, offered_to: str
    ) -> tuple[str, list[bytes] | None]:
        join = partial(self._store.join, self.shard, self.shards, new_name, begins, former, offer, offered_to)
        return self._store.client.retry(join, what="join the parameter servers", stop=self._stop)

    def _offer(self, new_name: str, offer: bytes, formation: str) -> tuple[str, list[bytes] | None] | None:
        """Offer to a formation; None while offers are missing, or a newer formation's name if one has begun."""
        name, offers = self._join(new_name, False, "", offer, formation)
        return (name, offers) if offers is not None or name != formation else None

    def _drop_queue(self) -> None:
        """Empty this server's queue: a gradient that only some servers have taken would separate them."""
        retry = partial(self._store.client.retry, what="empty the queue of gradients", stop=self._stop)
        connection, done = DirectConnection(self._store.client), list[str]()
        try:
            while entry := retry(partial(self._store.first, connection, self.shard, None, done)):
                try:
                    head: GradientHead | None = GradientHead.decode(entry.head)
                except CodecError:
                    head = None
                retry(partial(self._store.take, connection, self.shard, entry, head, self._token))
                done = self._store.blocks(self.shard, entry, head)
        finally:
            connection.release()

    def _wait_for(self, look: Callable[[], T | None]) -> T:
        deadline_s = time.monotonic() + self.timeout_s
        pause_s = _MIN_PAUSE_S
        try:
            while True:
                found = self._store.client.retry(
                    look, what="exchange values with the other parameter servers", stop=self._stop
                )
                if found is not None:
                    return found
                if time.monotonic() > deadline_s:
                    raise GroupChangedError(
                        f"the other parameter servers did not come for {self.timeout_s:.0f} s; are they all running?"
                    )
                if self._stop is not None and self._stop.is_set():
                    raise StoppedError("stopped while waiting for the other parameter servers")
                if pause_s > _NOTICE_PAUSE_S:
                    self._notice.tell("waiting for the other parameter servers, at most %.0f s", self.timeout_s)
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _MAX_PAUSE_S)
        finally:
            self._notice.end()


def _agree(name: str, offers: Sequence[Mapping[str, Any]]) -> Formation:
    """Find the newest common state: servers list states in the same order, but each may lack some."""
    common = set[str].intersection(*(set(offer["states"]) for offer in offers))
    state = next((state for state in reversed(offers[0]["states"]) if state in common), "")
    return Formation(name, state, max(int(offer["version"]) for offer in offers))
