"""StreamKeeper: the books of a replay over all of its shards: counts, limiter, leases, bounds.

Each shard has a `StreamOwner`, or a `StreamFollower` where the replay owns nothing. The keeper ticks them when it is
time, adds up what they know, and passes on the limiter's credit. A shard that does not answer is passed over,
and looked at again when the thread that reads its stream has met it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from surreal.base.errors import LeaseError, RedisUnavailableError, StoppedError
from surreal.base.system.logs import WaitNotice
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.storage import StoredChunk
from surreal.replay.stream.limiter import Credit, SamplesPerInsert
from surreal.replay.stream.owner import NO_BOUND, StreamFollower, StreamOwner

logger = logging.getLogger(__name__)

_URGENT_INTERVAL_S = 0.002
_CREDIT_INTERVAL_S = 0.02
#: Interval at which a follower reads the counts of a stream; several shards tell each other as often.
_COUNTS_INTERVAL_S = 0.25
_URGENT_COUNTS_INTERVAL_S = 0.02
#: How often a shard is asked that did not answer, and whose stream is not read here.
_AWAY_INTERVAL_S = 10.0
#: Samples that Redis may be ahead of the checkpoint.
_MOST_AHEAD = 1 << 30


class StreamKeeper:
    """Claims, renews and counts for one replay; used by one thread.

    Args:
        max_bytes: accounted bytes to keep, in all shards together; None: what fits under Redis' memory limit. For a
            follower, bytes of the chunks in its index; None: no bound.
        others: the run's other shards, whose env steps count as well.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        limiter: SamplesPerInsert | None,
        *,
        is_owner: bool,
        max_bytes: int | None,
        lease_s: float,
        stop: threading.Event,
        mode: str = "window",
        others: Sequence[Stream] = (),
    ) -> None:
        self.samples = 0
        self.consumes = is_owner and mode == "consume"
        self._is_only = len(streams) == 1
        self._lease_s = lease_s
        self._stop = stop
        self.owners: list[StreamOwner] = []
        self._foreign = [StreamFollower(stream, stop=stop, is_patient=False) for stream in others]
        self._followed: list[StreamFollower] = []
        if is_owner:
            share = max_bytes // len(streams) if max_bytes else None
            self.owners = [
                StreamOwner(stream, max_bytes=share, lease_s=lease_s, stop=stop, mode=mode, is_patient=self._is_only)
                for stream in streams
            ]
        else:
            self._followed = [StreamFollower(stream, stop=stop, is_patient=self._is_only) for stream in streams]
        self.shards: Sequence[StreamFollower] = self.owners or self._followed
        self._by_number = {owner.stream.shard: owner for owner in self.owners}
        self._follower_max_bytes = max_bytes or NO_BOUND
        self._limits = Credit(limiter, lease_s=lease_s)
        self._held_since_s: dict[int, float] = {}

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def is_owner(self) -> bool:
        return any(owner.is_owner for owner in self.owners)

    def owns(self, shard: int) -> bool:
        owner = self._by_number.get(shard)
        return owner is not None and owner.is_owner

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as last heard."""
        return sum(each.steps for each in (*self.shards, *self._foreign))

    @property
    def epoch(self) -> str:
        """The shards' epochs; it changes when a Redis was emptied."""
        return "+".join(each.epoch for each in self.shards)

    @property
    def max_bytes(self) -> int:
        """Accounted bytes to keep."""
        return sum(owner.max_bytes for owner in self.owners) if self.owners else self._follower_max_bytes

    @property
    def num_pending(self) -> int:
        return sum(owner.num_pending for owner in self.owners)

    @property
    def is_full(self) -> bool:
        return any(owner.is_full for owner in self.owners)

    def is_over(self, stored_bytes: Mapping[int, int]) -> bool:
        """Whether these bytes, by shard, are more than the replay may keep."""
        if not self.owners:
            return sum(stored_bytes.values()) > self._follower_max_bytes
        return any(number > self._by_number[shard].max_bytes for shard, number in stored_bytes.items())

    # -- counts ------------------------------------------------------------------------------------------------------

    def rebase(self, alive: int | None = None) -> None:
        """Make the limiter count from here: the streams hold too few transitions to begin with, `alive` of them.

        None: as many as they held when their env steps were counted; other chunks may have been read since.
        """
        if alive is None:
            alive = self._live_steps
        self._limits.rebase(max(self._steps - alive, 0), self.samples)

    def may_sample(self, number: int) -> bool:
        """Whether the limiter lets the learner sample that many transitions."""
        base, band = self._limits, self._limits.limiter
        return band is None or band.may_sample(self._steps - base.base_steps, self.samples - base.base_samples, number)

    # -- chunks ------------------------------------------------------------------------------------------------------

    def evict(self, chunk: StoredChunk) -> None:
        """Queue the removal of a chunk from Redis, if this replay owns its stream."""
        owner = self._by_number.get(chunk.shard)
        if owner is not None:
            owner.evict(chunk)

    def mark(self, chunk: StoredChunk, done: bytes) -> None:
        """Queue the mark of a chunk: its consumed steps, one bit per step."""
        self._by_number[chunk.shard].mark(chunk, done)

    def make_room_for(self, chunk: StoredChunk) -> None:
        """Keep room below the streams' bounds for chunks of this size."""
        owner = self._by_number.get(chunk.shard)
        if owner is None:
            return
        owner.largest_bytes = max(owner.largest_bytes, chunk.stored_bytes)
        self._limits.largest_chunk = max(self._limits.largest_chunk, chunk.steps)

    # -- leases ------------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Take the leases; wait for those of an owner that died. A shard that does not answer is claimed later. Raises
        `LeaseError` if another replay kept one for longer than a lease lasts, `RedisUnavailableError` if no shard
        answers, `ValueError` if the byte bound does not fit into Redis' memory.
        """
        if not self.owners:
            if all(follower.last_tick_s == 0.0 for follower in self._followed):
                self._read_counts(0.0)
            return
        if self.is_owner:
            return
        notice, began_s = WaitNotice(logger), time.monotonic()
        try:
            while True:
                waited_s = time.monotonic() - began_s  # before it is asked: this process may be held up after that
                held = [owner for owner in self.owners if not owner.is_owner and self._tick(owner, is_first=True)]
                client = self.owners[0].stream.client
                if not held and any(owner.is_owner for owner in self.owners):
                    if self._steps:
                        what = "the replay of run %s continues at %d env steps, of which it holds the last %d"
                        logger.info(what, client.run, self._steps, self._live_steps)
                    return
                if held and waited_s > 2 * self._lease_s + 1:
                    raise self._held()
                if not held and waited_s > client.retry_timeout_s:
                    raise RedisUnavailableError(f"no shard of run {client.run} answers", address=client.address)
                if held:
                    notice.tell("waiting until the learner that owned the replay of run %s last is gone", client.run)
                if self._stop.wait(0.1):
                    raise StoppedError("stopped while waiting for the stream's lease")
        finally:
            notice.end()

    def renew(self, *, is_waiting: bool = False) -> None:
        """Tick where it is time: chunks are to go, the credit changed, or the lease ends; raises `LeaseError`.

        If the learner waits for the limiter, the count of env steps must be fresh.
        """
        now_s = time.monotonic()
        if is_waiting is not self._limits.is_waiting:
            self._limits.note_wait(is_waiting, now_s)
        if self._followed or self._foreign:
            self._read_counts(_URGENT_COUNTS_INTERVAL_S if is_waiting else _COUNTS_INTERVAL_S)
        for owner in self.owners:
            if owner.num_pending or is_waiting:
                interval_s = _URGENT_INTERVAL_S
            elif self._limits.credit_of(owner, self.owners, samples=self.samples) != owner.credit_steps:
                interval_s = _CREDIT_INTERVAL_S
            else:
                interval_s = self._lease_s / 4 if self._is_only else min(self._lease_s / 4, _COUNTS_INTERVAL_S)
            if now_s - owner.last_tick_s >= interval_s and (self._is_only or not owner.stream.client.is_away):
                self._tick(owner)

    def refresh(self) -> None:
        """Tick now, so that the counts are exact, as lockstep needs them; raises as `claim` and `renew`."""
        self.claim()
        for owner in self.owners:
            self._tick(owner)

    def release(self) -> None:
        """Remove the remaining chunks to evict, and release the leases; without an error if Redis is gone."""
        for owner in self.owners:
            owner.release(self.samples, self.global_step - owner.steps)

    def metrics(self) -> dict[str, float]:
        live_bytes = sum(each.live_bytes for each in self.shards)
        return {
            "replay/env_steps_total": self.global_step,
            "replay/samples_total": self.samples,
            **self._limits.metrics(self._steps, self.samples, is_part=not self.owners),
            "replay/lease_wait_s_total": max((owner.lease_waited_s for owner in self.owners), default=0.0),
            "replay/redis_bytes": live_bytes,
            "replay/bytes_per_transition": live_bytes / max(self._live_steps, 1),
            "replay/shards_count": len(self.shards),
            "replay/shards_away_count": sum(each.stream.client.is_away for each in self.shards),
            "replay/shards_emptied_total": sum(each.num_emptied for each in self.shards),
        }

    # -- inside ------------------------------------------------------------------------------------------------------

    def _tick(self, owner: StreamOwner, *, is_first: bool = False) -> bool:
        """Tick one shard; returns whether another replay holds it."""
        was_owner, now_s = owner.is_owner, time.monotonic()
        state = owner.tick(
            credit_steps=self._limits.credit_of(owner, self.owners, samples=self.samples),
            samples=None if is_first else self.samples,
            other_steps=self.global_step - owner.steps,
        )
        if state is None:
            return False
        if state.refused_steps:
            self._limits.note_refusal(state.refused_steps)
        if state.is_owner and not was_owner:
            # What the last owner counted is right; a checkpoint's count is older, unless Redis was emptied.
            if state.samples <= self.samples + _MOST_AHEAD:  # any agent may write there
                self.samples = max(self.samples, state.samples)
            self._held_since_s.pop(owner.stream.shard, None)
        elif not state.is_owner and not is_first:
            # A shard that was away when the others were claimed; its last owner's lease may not have run out.
            since_s = self._held_since_s.setdefault(owner.stream.shard, now_s)
            if now_s - since_s > 2 * self._lease_s + 1:
                raise self._held()
        return not state.is_owner

    def _held(self) -> LeaseError:
        run = self.owners[0].stream.client.run
        return LeaseError(f"another learner owns the replay of run {run}; stop it, or use another run")

    def _read_counts(self, interval_s: float) -> None:
        now_s = time.monotonic()
        for follower in self._followed:
            if now_s - follower.last_tick_s >= interval_s and (self._is_only or not follower.stream.client.is_away):
                follower.read()
        for follower in self._foreign:  # no thread reads their streams, and would find out that one is back
            is_away = follower.stream.client.is_away
            if now_s - follower.last_try_s >= (_AWAY_INTERVAL_S if is_away else interval_s):
                follower.read()

    @property
    def _steps(self) -> int:
        """Env steps of the shards whose experience the replay uses: what the limiter counts."""
        return sum(each.steps for each in self.shards)

    @property
    def _live_steps(self) -> int:
        return sum(each.live_steps for each in self.shards)
