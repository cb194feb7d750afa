"""StreamOwner: one stream as the replay that owns it sees it, with a lease, bounds and evictions.

One replay owns a stream at a time. Its lease carries a random token that the evict script checks, so an owner that was
taken for dead cannot remove anything. Everything goes to Redis in one script call, the tick, a few times a second; the
`StreamKeeper`, which has an owner for each shard, decides when, and with which credit.

A replay that does not own a stream has a `StreamFollower`, which only reads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import redis

from surreal.base.errors import LeaseError
from surreal.base.system.process import FILL_SHARE, ROOM_BYTES, largest_replay_bytes, stream_bound_bytes
from surreal.distributed.connection.holders import HolderWatch, make_token
from surreal.distributed.experience.stream import Eviction, Mark, OwnerState, Stream
from surreal.replay.store.storage import StoredChunk

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Chunks of the largest size for which the owner leaves room below the stream's bound.
_ROOM_CHUNKS = 3
_DEFAULT_MAX_BYTES = 2 << 30
_MAX_EVICTIONS = 256
NO_BOUND = 1 << 62


class StreamFollower:
    """Reads the counts of one stream; used by one thread. If not patient, the next call repeats one that failed."""

    def __init__(self, stream: Stream, *, stop: threading.Event, is_patient: bool = True) -> None:
        self.stream = stream
        self.epoch = ""
        self.steps = self.live_bytes = self.live_steps = 0  #: steps: env steps of the shard, as last heard
        #: last_tick_s: time of Redis's last answer, on `time.monotonic`'s clock; 0: never
        #: last_try_s: time of the last attempt to read the counts; 0: never
        self.last_tick_s = self.last_try_s = 0.0
        self.num_emptied = 0  #: number of times that Redis came back empty
        self._stop = stop
        self._is_patient = is_patient

    def read(self) -> None:
        self.last_try_s = time.monotonic()
        counts = self._call(self.stream.counts, "read the stream's counts")
        if counts is None:
            return
        self.last_tick_s = time.monotonic()
        if self.epoch not in ("", counts.epoch):
            self.num_emptied += 1
            logger.warning("the stream has a new epoch: Redis was emptied")
        self.epoch = counts.epoch
        # After Redis was emptied the shard counts from zero until its owner has added what it knew.
        self.steps = max(self.steps, counts.steps)
        self.live_steps, self.live_bytes = counts.live_steps, counts.live_bytes

    def _call(self, operation: Callable[[], T], what: str) -> T | None:
        client = self.stream.client
        if self._is_patient:
            return client.retry(operation, what=what, stop=self._stop)
        return client.attempt(operation, what=what)


class StreamOwner(StreamFollower):
    """Claims, renews and prunes one stream; used by one thread.

    Args:
        max_bytes: accounted bytes to keep; None: what fits under the shard's part of Redis' memory limit (2 GiB if it
            has none).
        lease_s: life of the lease, s.
        mode: mode of the stream, "window" or "consume"; its first owner fixes it.
        is_patient: whether calls wait until Redis answers, as `StreamFollower` describes.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        max_bytes: int | None,
        lease_s: float,
        stop: threading.Event,
        mode: str = "window",
        is_patient: bool = True,
    ) -> None:
        super().__init__(stream, stop=stop, is_patient=is_patient)
        self.mode = mode
        self.bound_bytes = 0
        self.credit_steps: int | None = None  #: env steps that the shard may reach, as stored last; None: no limit
        self._max_bytes = max_bytes or 0
        #: size of the largest chunk in the replay, for which room is kept below the stream's bound
        self.largest_bytes = 0
        self._token = make_token(lease_s)
        self._watch = HolderWatch(lease_s)
        self._lease_s = lease_s
        self._pending: list[Eviction] = []
        self._marks: dict[bytes, Mark] = {}
        self._past_epochs: set[str] = set()

    @property
    def is_owner(self) -> bool:
        return self.epoch != ""

    @property
    def lease_waited_s(self) -> float:
        return self._watch.waited_s

    @property
    def max_bytes(self) -> int:
        """Accounted bytes to keep: some chunks less than the stream's bound, or a sender would wait forever."""
        if not self.bound_bytes:
            return NO_BOUND  # the server has not answered yet
        return min(self._max_bytes, max(self.bound_bytes - _ROOM_CHUNKS * self.largest_bytes, 0))

    @property
    def num_pending(self) -> int:
        return len(self._pending) + len(self._marks)

    @property
    def is_full(self) -> bool:
        return self.is_owner and self.live_bytes >= self.max_bytes

    def tick(self, *, credit_steps: int | None, samples: int | None, other_steps: int) -> OwnerState | None:
        """Renew the lease, grant credit, remove chunks; the first one claims the stream. Return the stream as it is
        now, or whose it is; None if Redis does not answer.

        `credit_steps` are env steps that the shard may reach (None: no limit), `samples` the transitions sampled so far
        in the whole run, to store (None: keep the stored number), `other_steps` env steps of the run's other shards.
        Raises `LeaseError` if another replay took the stream over, `ValueError` if the byte bound does not fit into
        Redis' memory.
        """
        if not self.bound_bytes and not self._set_bounds():
            return None
        evictions, marks = self._next_changes()

        def tick(void: str = "") -> OwnerState:
            state = self.stream.tick(
                self._token,
                lease_ms=int(self._lease_s * 1000),
                max_bytes=self.bound_bytes,
                credit_steps=credit_steps,
                samples=samples,
                recount_steps=self.steps,
                other_steps=other_steps,
                mode=self.mode,
                marks=marks,
                evict=evictions,
                void=void,
            )
            is_void = not (state.is_owner or self.is_owner or void) and self._watch.is_void(state.epoch, state.steps)
            return tick(state.epoch) if is_void else state

        state: OwnerState | None = None
        try:
            state = self._call(tick, "renew the stream's lease")
        finally:
            if state is None or not state.is_owner:
                self._pending = evictions + self._pending
                self._marks |= {mark.entry_id: mark for mark in marks}
        if state is None:
            return None
        self.last_tick_s = time.monotonic()
        if not state.is_owner:
            if self.is_owner:
                raise LeaseError(f"another learner took over the replay of run {self.stream.client.run}")
            return state
        if self.is_owner and state.epoch != self.epoch:
            logger.warning("the stream has a new epoch: Redis was emptied; the mirrored experience stays in use")
            self.num_emptied += 1
            self._past_epochs.add(self.epoch)
            self._pending = [chunk for chunk in self._pending if chunk.epoch not in self._past_epochs]
            self._marks = {key: mark for key, mark in self._marks.items() if mark.epoch not in self._past_epochs}
        self.credit_steps = credit_steps
        self.epoch, self.steps = state.epoch, state.steps
        self.live_steps, self.live_bytes = state.live_steps, state.live_bytes
        return state

    def release(self, samples: int, other_steps: int) -> None:
        """Remove the remaining chunks to evict, and release the lease; without an error if Redis is gone."""
        if not self.is_owner:
            return
        try:
            is_last = False
            while not is_last:
                evictions, marks = self._next_changes()
                is_last = not evictions
                self.stream.tick(
                    self._token,
                    lease_ms=0 if is_last else int(self._lease_s * 1000),
                    max_bytes=self.bound_bytes,
                    samples=samples,
                    recount_steps=self.steps,
                    other_steps=other_steps,
                    mode=self.mode,
                    marks=marks,
                    evict=evictions,
                )
        except (redis.exceptions.RedisError, OSError) as error:
            logger.debug("the stream's lease was not given back: %s", error)
        self.epoch = ""

    def evict(self, chunk: StoredChunk) -> None:
        """Remove a chunk from Redis with the next tick; forget one that an emptied Redis lost.

        A chunk of an epoch that the owner does not know yet came after Redis was emptied, and is removed.
        """
        if chunk.epoch not in self._past_epochs:
            self._pending.append(Eviction(chunk.entry_id, chunk.chunk_id, chunk.steps, chunk.stored_bytes, chunk.epoch))

    def mark(self, chunk: StoredChunk, done: bytes) -> None:
        """Store a chunk's mark with the next tick: its consumed steps, one bit per step."""
        if chunk.epoch not in self._past_epochs:
            self._marks[chunk.entry_id] = Mark(chunk.entry_id, done, chunk.epoch)

    def _set_bounds(self) -> bool:
        memory = self._call(self.stream.maxmemory_bytes, "read Redis' memory limit")
        if memory is None:
            return False
        if not memory:
            self._max_bytes = self._max_bytes or _DEFAULT_MAX_BYTES
            self.bound_bytes = _bound_above(self._max_bytes)
            return True
        fitting = largest_replay_bytes(memory)
        if self._max_bytes > fitting:
            raise ValueError(
                f"the replay's max_bytes is {self._max_bytes}; with Redis' maxmemory of {memory} bytes it must be"
                f" <= {fitting}, so that parameters and metrics have room: lower it, or raise maxmemory"
            )
        self.bound_bytes = stream_bound_bytes(memory)
        if self.mode == "consume" and self._max_bytes:
            # Nothing is evicted to make room, so the bound alone keeps agents from running ahead.
            self.bound_bytes = min(self.bound_bytes, _bound_above(self._max_bytes))
        self._max_bytes = self._max_bytes or fitting
        return True

    def _next_changes(self) -> tuple[list[Eviction], list[Mark]]:
        """Take the chunks that the next tick removes, and the marks of the others; each step is in one of them."""
        known = [chunk for chunk in self._pending if chunk.epoch == self.epoch]
        unknown = [chunk for chunk in self._pending if chunk.epoch != self.epoch]
        evictions, self._pending = known[:_MAX_EVICTIONS], known[_MAX_EVICTIONS:] + unknown
        for chunk in evictions:
            self._marks.pop(chunk.entry_id, None)
        marks = [mark for mark in self._marks.values() if mark.epoch == self.epoch]
        self._marks = {key: mark for key, mark in self._marks.items() if mark.epoch != self.epoch}
        return evictions, marks


def _bound_above(max_bytes: int) -> int:
    """Append limit of a stream, given the byte budget of its owner."""
    return int(max(max_bytes / FILL_SHARE, max_bytes + ROOM_BYTES))
