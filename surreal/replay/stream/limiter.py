"""The samples-per-insert limiter: keeps learning and acting in step, in both directions.

With I env steps inserted, N transitions sampled, ratio r, start size s and tolerance t (in samples), the band is

    r * (I - s) - t  <=  N  <=  r * (I - s) + t

The learner may draw a batch of B while N + B stays below the upper edge; agents may insert while N stays above the
lower edge, which is what the credit says: the largest I they may reach. Reverb's SampleToInsertRatio has this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


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
        """The band for a learner that draws batches of this size; None without a ratio.

        Raises:
            ValueError: it cannot hold a batch.
        """
        if ratio is None:
            return None
        band = cls(ratio, start_size, tolerance or max(4.0 * batch_size, 1024 * ratio))
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
        """Whether a batch may be drawn now."""
        if inserted < self.start_size:
            return False
        return sampled + batch_size <= self.ratio * (inserted - self.start_size) + self.tolerance

    def credit_steps(self, sampled: int) -> int:
        """Env steps that agents may reach in total."""
        return int(self.start_size + (sampled + self.tolerance) / self.ratio)
