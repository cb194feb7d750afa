"""Credit: what the samples-per-insert limiter allows, and each shard's part of what agents may still insert."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from surreal.replay.stream.limiter import SamplesPerInsert
from surreal.replay.stream.owner import StreamOwner

logger = logging.getLogger(__name__)

#: How long a shard has all the credit where it is too little for a chunk of each, s: longer than senders' pauses.
_TURN_S = 0.1


class Credit:
    """The limiter of one replay, counting from a base.

    Args:
        limiter: the band; None for no limit.
        lease_s: life of what a shard was granted, s.

    Attributes:
        limiter: the band as it is now: one that cannot hold a chunk that comes is widened.
    """

    def __init__(self, limiter: SamplesPerInsert | None, *, lease_s: float) -> None:
        self.base_steps = self.base_samples = 0
        self.limiter = limiter
        self._lease_s = lease_s
        self._largest_chunk = 0
        self._turn, self._turn_since_s = 0, 0.0

    def rebase(self, steps: int, samples: int) -> None:
        """Count from here.

        So it is when a checkpoint meets an emptied Redis: by the old counts the agents might have no credit to fill
        the replay again, and the learner would draw all that it "missed" from the little that is there.
        """
        self.base_steps, self.base_samples = steps, samples

    def may_sample(self, steps: int, samples: int, number: int) -> bool:
        """Whether the learner may draw that many transitions."""
        if self.limiter is None:
            return True
        return self.limiter.may_sample(steps - self.base_steps, samples - self.base_samples, number)

    def position(self, steps: int, samples: int) -> float | None:
        """Where in the band sampling is, see `SamplesPerInsert`; None without a limiter."""
        if self.limiter is None:
            return None
        return self.limiter.position(steps - self.base_steps, samples - self.base_samples)

    def edges(self, steps: int) -> tuple[float, float] | None:
        """Samples at which agents wait, and at which the learner does; None without a limiter."""
        if self.limiter is None:
            return None
        low, high = self.limiter.edges(steps - self.base_steps)
        return self.base_samples + low, self.base_samples + high

    def total(self, samples: int) -> int | None:
        """Env steps that the shards of the replay may reach together; None: as many as agents like."""
        if self.limiter is None:
            return None
        return self.base_steps + self.limiter.credit_steps(samples - self.base_samples)

    def note_chunk(self, steps: int) -> None:
        """Take note of a chunk's size."""
        self._largest_chunk = max(self._largest_chunk, steps)

    def note_refusal(self, steps: int) -> None:
        """Take note of a chunk that had to wait; a band that cannot hold it is widened, or it would wait for ever."""
        self.note_chunk(steps)
        if self.limiter is not None and not self.limiter.fits(steps):
            band = self.limiter.widened(steps)
            logger.warning(
                "chunks of %d steps are too large for a samples_per_insert_tolerance of %g, which is %g from now on, or"
                " agents and learner would wait for each other; lower chunk_steps of the senders, or set it so",
                steps, self.limiter.tolerance, band.tolerance,
            )  # fmt: skip
            self.limiter = band

    def credit_of(self, owner: StreamOwner, owners: Sequence[StreamOwner], *, samples: int) -> int | None:
        """Env steps that one shard may reach, so that all together keep below the credit.

        What agents may still insert is divided evenly; where a part would be too small for a chunk, one shard after
        the other has all of it. Credit counts as spent until the shard has confirmed that it has less.

        Args:
            owner: of the shard.
            owners: of all shards that this replay owns.
            samples: sampled so far.
        """
        total = self.total(samples)
        if total is None or len(owners) == 1:
            return total
        now_s = time.monotonic()
        left = max(total - sum(each.steps for each in owners), 0)
        spent = 0
        for other in owners:
            if other is not owner:
                # Of a shard that answers, what was spent is known with its next tick, however late that is.
                has_lapsed = other.stream.client.is_away and now_s - other.last_tick_s > 2 * self._lease_s
                spent += other.steps if has_lapsed else max(other.steps, other.credit_steps or 0)
        live = [each for each in owners if not each.stream.client.is_away]
        share = left // max(len(live), 1)
        if share < self._largest_chunk:
            share = left if self._is_turn_of(owner, live, now_s) else 0
        return min(total - spent, owner.steps + share)

    def _is_turn_of(self, owner: StreamOwner, live: Sequence[StreamOwner], now_s: float) -> bool:
        if now_s - self._turn_since_s >= _TURN_S:
            self._turn, self._turn_since_s = self._turn + 1, now_s
        return bool(live) and live[self._turn % len(live)] is owner
