"""The samples-per-insert limiter: keeps learning and acting in step, in both directions.

With I env steps inserted, N transitions sampled, ratio r, start size s and tolerance t (in samples), the band is

    r * (I - s) - t  <=  N  <=  r * (I - s) + t

The learner may draw a batch of B while N + B stays below the upper edge; agents may insert while N stays above the
lower edge. Their credit is the largest I that they may reach. Reverb's SampleToInsertRatio has this form.

`SamplesPerInsert` is the band, and `Credit` its part for each shard.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from surreal.replay.stream.owner import StreamOwner

logger = logging.getLogger(__name__)

#: How long a shard has all the credit where it is too little for a chunk of each, s: longer than senders' pauses.
_TURN_S = 0.1


class Senders(NamedTuple):
    """The processes that insert, as far as they are known before."""

    number: int  #: of them, >= 1
    chunk_steps: int  #: env steps of a chunk
    largest_chunk_steps: int  #: env steps that one chunk may hold at most
    lookahead: int  #: steps of an environment that wait for those after them

    @property
    def steps_in_flight(self) -> int:
        return self.number * self.chunk_steps


class LeastTolerance(NamedTuple):
    """The least tolerances of a band, in samples, each for its own reason."""

    in_flight: float  #: what one chunk of every sender entitles the learner to
    batch: float  #: a batch, and what a single env step entitles to
    chunk: float  #: what the largest chunk entitles to


def least_tolerance(ratio: float, batch_size: int, senders: Senders) -> LeastTolerance:
    """Compute the tolerances below which agents and learner would wait for each other.

    `ratio` is transitions sampled for each env step inserted; the limiter counts `batch_size` transitions for a batch.
    """
    return LeastTolerance(
        in_flight=ratio * senders.steps_in_flight, batch=batch_size + ratio, chunk=ratio * senders.largest_chunk_steps
    )


def default_tolerance(ratio: float, batch_size: int, senders: Senders | None = None) -> float:
    """The tolerance where none is given: enough for two batches and two chunks of each sender.

    If nothing is known of the senders, it assumes chunks of 1024 steps in total, and leaves room for four batches.
    """
    if senders is None:
        return max(4.0 * batch_size, 1024 * ratio)
    least = least_tolerance(ratio, batch_size, senders)
    return 2.0 * max(least.in_flight, least.chunk, batch_size)


@dataclass(frozen=True)
class SamplesPerInsert:
    """The band between sampling and inserting."""

    ratio: float  #: transitions sampled for each env step inserted, > 0. Raising it learns more from each step.
    start_size: int  #: env steps before the first sample, >= 1
    #: half the width of the band, in samples; it must hold the chunks of all agents at once (ratio * steps) and a
    #: batch, or agents and learner would wait for each other
    tolerance: float

    def __post_init__(self) -> None:
        if self.ratio <= 0 or self.start_size < 1 or self.tolerance <= 0:
            raise ValueError("ratio and tolerance must be > 0, and start_size >= 1")

    @classmethod
    def for_batches(
        cls, ratio: float | None, *, start_size: int, tolerance: float | None, batch_size: int
    ) -> SamplesPerInsert | None:
        """The band for batches of this size; None without a ratio. Raises `ValueError` if it cannot hold one."""
        if ratio is None:
            return None
        band = cls(ratio, start_size, tolerance or default_tolerance(ratio, batch_size))
        band.check_batch(batch_size)
        return band

    def check_batch(self, batch_size: int) -> None:
        """Refuse a band that cannot hold a batch; raises `ValueError` with the value that would do."""
        needed = batch_size + self.ratio
        if self.tolerance < needed:
            raise ValueError(
                f"samples_per_insert_tolerance is {self.tolerance:g}; it must be >= batch_size + samples_per_insert"
                f" = {needed:g}, or agents and learner would wait for each other"
            )

    def may_sample(self, inserted: int, sampled: int, batch_size: int) -> bool:
        if inserted < self.start_size:
            return False
        return sampled + batch_size <= self.ratio * (inserted - self.start_size) + self.tolerance

    def position(self, inserted: int, sampled: int) -> float:
        """Position in the band: 0 at the edge where agents wait, 1 at the edge where the learner waits."""
        ahead = sampled - self.ratio * (inserted - self.start_size)
        return min(max(0.5 + ahead / (2 * self.tolerance), 0.0), 1.0)

    def edges(self, inserted: int) -> tuple[float, float]:
        """Samples at which agents wait, and at which the learner does."""
        middle = self.ratio * (inserted - self.start_size)
        return middle - self.tolerance, middle + self.tolerance

    def credit_steps(self, sampled: int) -> int:
        return int(self.start_size + (sampled + self.tolerance) / self.ratio)


class Credit:
    """The limiter of one replay, counting from a base; without a band, nothing is limited."""

    def __init__(self, limiter: SamplesPerInsert | None, *, lease_s: float) -> None:
        self.base_steps = self.base_samples = 0
        self.limiter = limiter  #: the current band; one that cannot hold a chunk is widened
        self._lease_s = lease_s
        self.largest_chunk = 0  #: env steps of the largest chunk so far
        self._turn, self._turn_since_s = 0, 0.0
        self.is_waiting = False  #: whether the learner waits for experience
        self._waits_s = self._waiting_since_s = 0.0

    def note_wait(self, is_waiting: bool, now_s: float) -> None:
        """Record that the learner begins or ends to wait for the limiter."""
        if self.is_waiting:
            self._waits_s += now_s - self._waiting_since_s
        self.is_waiting, self._waiting_since_s = is_waiting, now_s

    def metrics(self, steps: int, samples: int, *, is_part: bool) -> dict[str, float]:
        """Return the ratio of samples to env steps, of the whole run or of a follower's part of it, and the band."""
        base_steps, base_samples = (self.base_steps, self.base_samples) if is_part else (0, 0)
        learned_from = max(steps - (self.limiter.start_size if self.limiter else 0) - base_steps, 1)
        found = {
            "replay/samples_per_insert": (samples - base_samples) / learned_from,
            "replay/limiter_wait_s_total": self._waits_s,
        }
        if (position := self.position(steps, samples)) is not None:
            found["replay/limiter_position_ratio"] = position
        for name, edge in zip(("low", "high"), self.edges(steps) or (), strict=False):
            found[f"replay/samples_per_insert_{name}"] = max(edge - base_samples, 0.0) / learned_from
        return found

    def rebase(self, steps: int, samples: int) -> None:
        """Count from here.

        This is for a checkpoint that meets an emptied Redis. By the old counts, the agents might have no credit to fill
        the replay again, and the learner would sample all that it "missed" from the few steps that exist.
        """
        self.base_steps, self.base_samples = steps, samples

    def position(self, steps: int, samples: int) -> float | None:
        if self.limiter is None:
            return None
        return self.limiter.position(steps - self.base_steps, samples - self.base_samples)

    def edges(self, steps: int) -> tuple[float, float] | None:
        if self.limiter is None:
            return None
        low, high = self.limiter.edges(steps - self.base_steps)
        return self.base_samples + low, self.base_samples + high

    def total(self, samples: int) -> int | None:
        """Env steps that the replay's shards may reach in total; None: no limit."""
        if self.limiter is None:
            return None
        return self.base_steps + self.limiter.credit_steps(samples - self.base_samples)

    def note_refusal(self, steps: int) -> None:
        """Record a chunk that had to wait; widen a band that cannot hold it, or it would wait forever."""
        self.largest_chunk = max(self.largest_chunk, steps)
        if self.limiter is not None and self.limiter.tolerance < self.limiter.ratio * steps:
            band = replace(self.limiter, tolerance=2 * self.limiter.ratio * steps)  # room for somewhat larger ones
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
        """
        total = self.total(samples)
        if total is None or len(owners) == 1:
            return total
        now_s = time.monotonic()
        left = max(total - sum(each.steps for each in owners), 0)
        spent = 0
        for other in owners:
            if other is not owner:
                # The next tick of a shard that answers tells what was spent, however late it is.
                has_lapsed = other.stream.client.is_away and now_s - other.last_tick_s > 2 * self._lease_s
                spent += other.steps if has_lapsed else max(other.steps, other.credit_steps or 0)
        live = [each for each in owners if not each.stream.client.is_away]
        share = left // max(len(live), 1)
        if share < self.largest_chunk:
            share = left if self._is_turn_of(owner, live, now_s) else 0
        return min(total - spent, owner.steps + share)

    def _is_turn_of(self, owner: StreamOwner, live: Sequence[StreamOwner], now_s: float) -> bool:
        if now_s - self._turn_since_s >= _TURN_S:
            self._turn, self._turn_since_s = self._turn + 1, now_s
        return bool(live) and live[self._turn % len(live)] is owner
