"""BatchSampler: samples, asks for what was sampled, and samples again where its observations are gone.

Called by the replay's thread. With mirrored observations a batch is there at once; with remote ones it is asked for
while the one before it is being fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import UserCodeError, describe_method
from surreal.base.values import are_within
from surreal.replay.engine.batches import BatchMaker

#: Sequence numbers [B] of transitions, or of the first steps of trajectories; or these and the probability of each [B].
Sampled = NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]


class OwnRows(NamedTuple):
    """Rows that a `_sample` took from a custom data structure, for the `aggregate_batch` of its replay."""

    rows: Any
    size: int


_LEAST_PROBABILITY = float(np.nextafter(0.0, 1.0))
#: How often a batch is sampled again before the replay's thread looks after other things.
_MAX_TRIES = 16


def sample_uniform(rng: np.random.Generator, begin: int, end: int, size: int) -> NDArray[np.int64]:
    """Numbers [size] of begin .. end - 1, uniformly, with replacement; `Generator.integers` takes three times as long.

    A float64 in [0, 1) times a number below 2**53 stays below it, and no number is more likely than another by more
    than one part in 2**53 / (end - begin).
    """
    return (rng.random(size) * (end - begin)).astype(np.int64) + begin


def check_sampled(sampled: Sampled, method: Any, *, alive: range, batch_size: int) -> Sampled:
    """Refuse what nobody could gather: rows that are not there would be taken from others' places.

    Args:
        sampled: what `method`, a `_sample`, gave.
        method: named in errors.
        alive: sequence numbers that may be sampled.
        batch_size: how many were asked for.

    Raises:
        UserCodeError: dtype, number or range is another; or a probability is not in (0, 1].
    """
    numbers, probability = sampled if isinstance(sampled, tuple) else (sampled, None)
    problem = ""
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "iu":
        kind = numbers.dtype if isinstance(numbers, np.ndarray) else type(numbers).__name__
        problem = f"gives {kind}; it must give an array of integers"
    elif numbers.shape != (batch_size,):
        problem = f"gives numbers of shape {numbers.shape}; {batch_size} were asked for"
    elif not are_within(numbers, alive.start, alive.stop - 1):
        wrong = numbers[(numbers < alive.start) | (numbers >= alive.stop)][0]
        problem = f"gives {wrong}; those that can be sampled now are {alive.start} .. {alive.stop - 1}"
    elif probability is not None and (
        probability.shape != (batch_size,) or not are_within(probability, _LEAST_PROBABILITY, 1.0 + 1e-9)
    ):
        problem = f"gives probabilities of shape {probability.shape} that are not all in (0, 1]"
    if problem:
        raise UserCodeError(f"{describe_method(method)} {problem}")
    return sampled


class BatchSampler:
    """Batches in the order in which they were asked for.

    Args:
        maker: what they are made by.
        sample: samples a batch of the live, or takes the replay's own rows.
        sample_again: samples others in the places of some of a batch; given its sequence numbers [B].
        give_back: called with the sequence numbers [B] of a batch that cannot be made, because observations are gone.
        after_loss: called then: lets go what has lost its observations; returns whether to sample again.
    """

    def __init__(
        self,
        maker: BatchMaker[Any, Any],
        *,
        sample: Callable[[], Sampled | OwnRows],
        sample_again: Callable[[NDArray[np.int64]], Sampled],
        give_back: Callable[[NDArray[np.int64]], object],
        after_loss: Callable[[], bool],
    ) -> None:
        self._maker = maker
        self._store = maker.store
        self._sample = sample
        self._sample_again = sample_again
        self._give_back = give_back
        self._asked: deque[NDArray[np.int64] | OwnRows] = deque()  # sequence numbers of each batch asked for
        self._after_loss = after_loss

    @property
    def num_asked(self) -> int:
        """Batches that were asked for and not collected."""
        return len(self._asked)

    @property
    def asks_ahead(self) -> int:
        """Batches that should be asked for ahead of the one collected."""
        return self._store.observations.asks_ahead

    def ask(self) -> None:
        """Sample a batch and ask for it."""
        sampled = self._sample_present()
        if isinstance(sampled, OwnRows):
            self._asked.append(sampled)
            return
        if isinstance(sampled, tuple):
            numbers, probability = sampled
        else:
            numbers, probability = sampled, np.empty(len(sampled))
            probability.fill(1.0 / len(self._store))
        self._asked.append(numbers)
        self._maker.ask(numbers, probability)

    def collect(self) -> Any | None:
        """What the oldest batch asked for holds; None if what remains is too little, or batch after batch was gone."""
        for _ in range(_MAX_TRIES):
            if not self._asked:
                return None
            numbers = self._asked.popleft()
            if isinstance(numbers, OwnRows):
                return numbers
            gathered = self._maker.collect()
            if gathered is not None:
                return gathered
            self._give_back(numbers)
            if self._after_loss():
                self.ask()
        return None

    def _sample_present(self) -> Sampled | OwnRows:
        """Sample; where observations are known to be gone, others that were sampled take their place."""
        sampled = self._sample()
        if isinstance(sampled, OwnRows):
            return sampled
        numbers = sampled[0] if isinstance(sampled, tuple) else sampled
        are_gone = self._store.are_gone(numbers)
        if are_gone is None or not are_gone.any():
            return sampled
        numbers = numbers.copy()
        probability = sampled[1].copy() if isinstance(sampled, tuple) else None
        for _ in range(_MAX_TRIES):
            again = self._sample_again(numbers)
            others = again[0] if isinstance(again, tuple) else again
            gone_too = self._store.are_gone(others)
            # In the same place: a sampler may have taken parts of its batch from different parts of the replay.
            places = np.flatnonzero(are_gone if gone_too is None else are_gone & ~gone_too)
            numbers[places], are_gone[places] = others[places], False
            if probability is not None and isinstance(again, tuple):
                probability[places] = again[1][places]
            if not are_gone.any():
                break
        return numbers if probability is None else (numbers, probability)
