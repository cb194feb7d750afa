"""StreamOwner: the lease of a stream, the limiter's books, and the removal of chunks from Redis.

One replay owns a stream at a time. Its lease carries a random token that the evict script checks, so an owner that was
taken for dead cannot remove anything. Everything goes to Redis in one script call, the tick, a few times a second.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time

import redis

from surreal.distributed.stream import Eviction, Mark, OwnerState, Stream
from surreal.errors import LeaseError, StoppedError
from surreal.replay.limiter import SamplesPerInsert
from surreal.replay.storage import StoredChunk
from surreal.utils.memory import FILL_SHARE, ROOM_BYTES, largest_replay_bytes, stream_bound_bytes

logger = logging.getLogger(__name__)

#: Chunks of the largest size for which the owner leaves room below the stream's bound.
_ROOM_CHUNKS = 3
_DEFAULT_MAX_BYTES = 2 << 30
_MAX_EVICTIONS = 256
_URGENT_INTERVAL_S = 0.002
_CREDIT_INTERVAL_S = 0.02


class StreamOwner:
    """Claims, renews and prunes one stream; used by one thread.

    Args:
        stream: the shard.
        limiter: the samples-per-insert band, None for no limit.
        max_bytes: accounted bytes to keep; None: what fits under Redis' memory limit (2 GiB if it has none).
        lease_s: life of the lease, s.
        stop: ends waits.
        mode: of the stream: "window", or "consume"; its first owner fixes it.
    """

    def __init__(
        self,
        stream: Stream,
        limiter: SamplesPerInsert | None,
        *,
        max_bytes: int | None,
        lease_s: float,
        stop: threading.Event,
        mode: str = "window",
    ) -> None:
        self.stream = stream
        self.mode = mode
        self.limiter = limiter
        self.max_bytes = max_bytes or 0
        self.epoch = ""
        self.global_step = 0
        self.samples = 0
        self._token = secrets.token_hex(8)
        self._lease_s = lease_s
        self._stop = stop
        self._bound_bytes = 0
        self._pending: list[Eviction] = []
        self._marks: dict[bytes, Mark] = {}
        self._past_epochs: set[str] = set()
        self._has_warned = False
        self._base_steps = self._base_samples = 0
        self._last_tick_s = 0.0
        self._last_credit: int | None = None
        self._live_bytes = 0
        self._live_steps = 0
        self._waits_s = 0.0
        self._waiting_since_s: float | None = None

    @property
    def is_owner(self) -> bool:
        """Whether the stream was claimed."""
        return self.epoch != ""

    def restore(self, *, global_step: int, samples: int) -> None:
        """Take over the counts of a checkpoint."""
        self.global_step, self.samples = global_step, samples

    def claim(self) -> None:
        """Get the lease, once; waits for that of an owner who died.

        Raises:
            LeaseError: another replay kept it for longer than a lease lasts.
            ValueError: the byte bound does not fit into Redis' memory.
            StoppedError: `stop` was set.
        """
        if self.is_owner:
            return
        self._set_bounds()
        deadline_s = time.monotonic() + 2 * self._lease_s + 1
        while not self._tick(samples=None):
            if time.monotonic() > deadline_s:
                run = self.stream.client.run
                raise LeaseError(f"another learner owns the replay of run {run}; stop it, or use another run")
            if self._stop.wait(0.1):
                raise StoppedError("stopped while waiting for the stream's lease")

    def renew(self, *, is_waiting: bool = False) -> None:
        """Tick if it is time: chunks are to go, the limiter's credit changed, or the lease wants renewal.

        Args:
            is_waiting: the learner waits for the limiter, so the count of env steps must be fresh.

        Raises:
            LeaseError: another replay took the stream over.
        """
        now_s = time.monotonic()
        if is_waiting and self._waiting_since_s is None:
            self._waiting_since_s = now_s
        elif not is_waiting and self._waiting_since_s is not None:
            self._waits_s += now_s - self._waiting_since_s
            self._waiting_since_s = None
        if self._pending or self._marks or is_waiting:
            interval_s = _URGENT_INTERVAL_S
        elif self._credit() != self._last_credit:
            interval_s = _CREDIT_INTERVAL_S
        else:
            interval_s = self._lease_s / 4
        if now_s - self._last_tick_s >= interval_s and not self._tick(samples=self.samples):
            raise LeaseError(f"another learner took over the replay of run {self.stream.client.run}")

    def release(self) -> None:
        """Remove what is still to go, and give the lease back; quietly, if Redis is gone."""
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
                    max_bytes=self._bound_bytes,
                    samples=self.samples,
                    mode=self.mode,
                    marks=marks,
                    evict=evictions,
                )
        except (redis.exceptions.RedisError, OSError) as error:
            logger.debug("the stream's lease was not given back: %s", error)
        self.epoch = ""

    def evict(self, chunk: StoredChunk) -> None:
        """Have a chunk removed from Redis with the next tick; one that an emptied Redis lost is forgotten.

        A chunk of an epoch that the owner has not heard of yet came after Redis was emptied, and is removed.
        """
        if chunk.epoch not in self._past_epochs:
            self._pending.append(Eviction(chunk.entry_id, chunk.chunk_id, chunk.steps, chunk.stored_bytes, chunk.epoch))

    def mark(self, chunk: StoredChunk, done: bytes) -> None:
        """Have it stored with the next tick which steps of a chunk were consumed, one bit a step."""
        if chunk.epoch not in self._past_epochs:
            self._marks[chunk.entry_id] = Mark(chunk.entry_id, done, chunk.epoch)

    @property
    def is_full(self) -> bool:
        """Whether the stream held as much as it may, when it was looked at last."""
        return self.is_owner and self._live_bytes >= self.max_bytes

    def make_room_for(self, chunk: StoredChunk) -> None:
        """Keep a few chunks of this size free below the stream's bound, or a sender would wait for ever."""
        self.max_bytes = min(self.max_bytes, max(self._bound_bytes - _ROOM_CHUNKS * chunk.stored_bytes, 0))
        if self.limiter is not None and not self._has_warned and not self.limiter.fits(chunk.steps):
            self._has_warned = True
            logger.warning(
                "chunks of %d steps are too large for a samples_per_insert_tolerance of %g: agents and learner may wait"
                " for each other; raise it to %g or more, or lower the senders' chunk_steps",
                chunk.steps, self.limiter.tolerance, self.limiter.ratio * chunk.steps,
            )  # fmt: skip

    def rebase(self, alive: int) -> None:
        """Let the limiter count from here: the stream holds only `alive` transitions, too few to begin with.

        So it is when a checkpoint meets an emptied Redis: by the old counts the agents might have no credit to fill
        the replay again, and the learner would draw all that it "missed" from the little that is there.
        """
        self._base_steps, self._base_samples = max(self.global_step - alive, 0), self.samples

    def may_sample(self, number: int) -> bool:
        """Whether the limiter lets the learner draw that many transitions."""
        inserted, sampled = self.global_step - self._base_steps, self.samples - self._base_samples
        return self.limiter is None or self.limiter.may_sample(inserted, sampled, number)

    def count_samples(self, number: int) -> None:
        """Count transitions that were drawn."""
        self.samples += number

    def metrics(self) -> dict[str, float]:
        """State of the stream at the last tick."""
        steps = max(self.global_step - (self.limiter.start_size if self.limiter else 0), 1)
        return {
            "replay/global_step": self.global_step,
            "replay/samples": self.samples,
            "replay/samples_per_insert": self.samples / steps,
            "replay/limiter_wait_s": self._waits_s,
            "replay/redis_bytes": self._live_bytes,
            "replay/bytes_per_transition": self._live_bytes / max(self._live_steps, 1),
        }

    def _set_bounds(self) -> None:
        client = self.stream.client
        memory = client.retry(self.stream.maxmemory_bytes, what="read Redis' memory limit", stop=self._stop)
        if not memory:
            self.max_bytes = self.max_bytes or _DEFAULT_MAX_BYTES
            self._bound_bytes = int(max(self.max_bytes / FILL_SHARE, self.max_bytes + ROOM_BYTES))
            return
        self._bound_bytes, fitting = stream_bound_bytes(memory), largest_replay_bytes(memory)
        if self.max_bytes > fitting:
            raise ValueError(
                f"the replay's max_bytes is {self.max_bytes}; with Redis' maxmemory of {memory} bytes it must be"
                f" <= {fitting}, so that parameters and metrics have room: lower it, or raise maxmemory"
            )
        self.max_bytes = self.max_bytes or fitting

    def _credit(self) -> int | None:
        if self.limiter is None:
            return None
        return self._base_steps + self.limiter.credit_steps(self.samples - self._base_samples)

    def _tick(self, samples: int | None) -> bool:
        evictions, marks = self._next_changes()
        credit = self._credit()

        def tick() -> OwnerState:
            return self.stream.tick(
                self._token,
                lease_ms=int(self._lease_s * 1000),
                max_bytes=self._bound_bytes,
                credit_steps=credit,
                samples=samples,
                recount_steps=self.global_step,
                mode=self.mode,
                marks=marks,
                evict=evictions,
            )

        state = self.stream.client.retry(tick, what="renew the stream's lease", stop=self._stop)
        self._last_tick_s = time.monotonic()
        if not state.is_owner:
            return False
        if not self.is_owner:
            # What the last owner counted is right; a checkpoint's count is older, unless Redis was emptied.
            self.samples = max(self.samples, state.samples)
        elif state.epoch != self.epoch:
            logger.warning("the stream has a new epoch: Redis was emptied; the mirrored experience stays in use")
            self._past_epochs.add(self.epoch)
            self._pending = [chunk for chunk in self._pending if chunk.epoch not in self._past_epochs]
            self._marks = {key: mark for key, mark in self._marks.items() if mark.epoch not in self._past_epochs}
        self._last_credit = credit
        self.epoch = state.epoch
        self.global_step = state.steps
        self._live_steps, self._live_bytes = state.live_steps, state.live_bytes
        return True

    def _next_changes(self) -> tuple[list[Eviction], list[Mark]]:
        """Take the chunks that the next tick removes, and the marks of those that stay: no step may be in neither."""
        known = [chunk for chunk in self._pending if chunk.epoch == self.epoch]
        unknown = [chunk for chunk in self._pending if chunk.epoch != self.epoch]
        evictions, self._pending = known[:_MAX_EVICTIONS], known[_MAX_EVICTIONS:] + unknown
        for chunk in evictions:
            self._marks.pop(chunk.entry_id, None)
        marks = [mark for mark in self._marks.values() if mark.epoch == self.epoch]
        self._marks = {key: mark for key, mark in self._marks.items() if mark.epoch != self.epoch}
        return evictions, marks
