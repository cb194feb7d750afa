"""The samples-per-insert limiter: keeps learning and acting in step, in both directions.

With I env steps inserted, N transitions sampled, ratio r, start size s and tolerance t (in samples), the band is

    r * (I - s) - t  <=  N  <=  r * (I - s) + t

The learner may draw a batch of B while N + B stays below the upper edge; agents may insert while N stays above the
lower edge, which is what the credit says: the largest I they may reach. Reverb's SampleToInsertRatio has this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


class Senders(NamedTuple):
    """Those who insert, as far as is known before they do."""

    number: int  #: of them, >= 1
    chunk_steps: int  #: env steps of a chunk
    largest_chunk_steps: int  #: env steps that one chunk may hold at most
    lookahead: int  #: steps of an environment that wait for those after them

    @property
    def steps_in_flight(self) -> int:
        """Env steps of one chunk of each."""
        return self.number * self.chunk_steps


class LeastTolerance(NamedTuple):
    """What a band has to hold, in samples, each for itself."""

    in_flight: float  #: what one chunk of every sender entitles the learner to
    batch: float  #: a batch, and what a single env step entitles to
    chunk: float  #: what the largest chunk entitles to


def least_tolerance(ratio: float, batch_size: int, senders: Senders) -> LeastTolerance:
    """Say below which tolerances agents and learner would wait for each other.

    Args:
        ratio: transitions sampled for each env step inserted.
        batch_size: transitions that the limiter counts for a batch.
        senders: those who will insert.
    """
    return LeastTolerance(
        in_flight=ratio * senders.steps_in_flight,
        batch=batch_size + ratio,
        chunk=ratio * senders.largest_chunk_steps,
    )


def default_tolerance(ratio: float, batch_size: int, senders: Senders | None = None) -> float:
    """The tolerance where none is given: enough for two batches and two chunks of each sender.

    Of senders of whom nothing is known, it takes chunks of 1024 steps in all, and leaves room for four batches.
    """
    if senders is None:
        return max(4.0 * batch_size, 1024 * ratio)
    least = least_tolerance(ratio, batch_size, senders)
    return 2.0 * max(least.in_flight, least.chunk, batch_size)


@dataclass(frozen=True)
class SamplesPerInsert:
    """The band between sampling and inserting.

    Args:
        ratio: transitions sampled for each env step inserted, > 0. Raising it learns more from each step.
        start_size: env steps before the first sample, >= 1.
        tolerance: half the width of the band, in samples; it must hold the chunks of all agents at once
            (ratio * steps) and a batch, or agents and learner would wait for each other.
    """

    ratio: float
    start_size: int
    tolerance: float

    def __post_init__(self) -> None:
        if self.ratio <= 0 or self.start_size < 1 or self.tolerance <= 0:
            raise ValueError("ratio and tolerance must be > 0, and start_size >= 1")

    @classmethod
    def for_batches(
        cls, ratio: float | None, *, start_size: int, tolerance: float | None, batch_size: int
    ) -> SamplesPerInsert | None:
        """The band for a learner that samples batches of this size; None without a ratio.

        Raises:
            ValueError: it cannot hold a batch.
        """
        if ratio is None:
            return None
        band = cls(ratio, start_size, tolerance or default_tolerance(ratio, batch_size))
        band.check_batch(batch_size)
        return band

    def check_batch(self, batch_size: int) -> None:
        """Refuse a band that cannot hold a batch.

        Raises:
            ValueError: with the value that would do.
        """
        needed = batch_size + self.ratio
        if self.tolerance < needed:
            raise ValueError(
                f"samples_per_insert_tolerance is {self.tolerance:g}; it must be >= batch_size + samples_per_insert"
                f" = {needed:g}, or agents and learner would wait for each other"
            )

    def fits(self, chunk_steps: int) -> bool:
        """Whether the band holds a chunk; otherwise its agent and the learner may wait for each other."""
        return self.tolerance >= self.ratio * chunk_steps

    def widened(self, chunk_steps: int) -> SamplesPerInsert:
        """The band that holds a chunk, with room for somewhat larger ones."""
        return replace(self, tolerance=2 * self.ratio * chunk_steps)

    def may_sample(self, inserted: int, sampled: int, batch_size: int) -> bool:
        """Whether a batch may be sampled now."""
        if inserted < self.start_size:
            return False
        return sampled + batch_size <= self.ratio * (inserted - self.start_size) + self.tolerance

    def position(self, inserted: int, sampled: int) -> float:
        """Where in the band sampling is: 0 at the edge where agents wait, 1 at the one where the learner waits."""
        ahead = sampled - self.ratio * (inserted - self.start_size)
        return min(max(0.5 + ahead / (2 * self.tolerance), 0.0), 1.0)

    def edges(self, inserted: int) -> tuple[float, float]:
        """Samples at which agents wait, and at which the learner does."""
        middle = self.ratio * (inserted - self.start_size)
        return middle - self.tolerance, middle + self.tolerance

    def credit_steps(self, sampled: int) -> int:
        """Env steps that agents may reach in total."""
        return int(self.start_size + (sampled + self.tolerance) / self.ratio)
