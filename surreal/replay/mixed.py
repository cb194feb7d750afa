"""MixedReplay: on-policy and off-policy transitions in one batch, for interpolated policy gradients.

Gu et al. 2017, arXiv:1706.00387: a gradient is nu times an off-policy one (of a critic, over states of a replay) plus
(1 - nu) times an on-policy one. The learner weighs the parts; `batch.extras["is_on_policy"]` says which row is which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.format.codec import Chunk
from surreal.distributed.experience.shards import ReplayShards
from surreal.errors import ContractError
from surreal.replay.base import Replay
from surreal.replay.engine.sampling import sample_uniform
from surreal.replay.store.storage import Gathered
from surreal.types import Batch

ON_POLICY_COLUMN = "is_on_policy"


class MixedReplay(Replay[Batch]):
    """Samples a part of each batch from the newest steps, the rest uniformly from all.

    The first round(on_policy_fraction * batch_size) rows are the on-policy part: sampled, without replacement, from the
    newest `on_policy_window` transitions, as far as their parameter versions are at most `max_version_lag` behind
    the newest of them. It never waits for further ones: where they are too few, rows repeat, which is counted.

    Args:
        client: the replay server; or the `ReplayShards`, if there are several.
        on_policy_fraction: share of the on-policy rows, 0 .. 1.
        on_policy_window: newest transitions that may be on-policy, >= 1. Raising it repeats fewer rows, and takes older
            ones where versions do not tell.
        max_version_lag: versions that an on-policy row may be behind, >= 0. Steps of unknown version (-1) are behind
            all that are known.
        options: as in `Replay`.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        on_policy_fraction: float = 0.5,
        on_policy_window: int = 4096,
        max_version_lag: int = 1,
        **options: Any,
    ) -> None:
        if not 0.0 <= on_policy_fraction <= 1.0:
            raise ValueError(f"on_policy_fraction is {on_policy_fraction}; it must be 0 .. 1")
        if on_policy_window < 1 or max_version_lag < 0:
            raise ValueError("on_policy_window must be >= 1, and max_version_lag >= 0")
        super().__init__(client, **options)
        self.on_policy_rows = round(on_policy_fraction * self.batch_size)
        self._window = on_policy_window
        self._max_version_lag = max_version_lag
        self._fresh = np.empty(0, np.int64)  # numbers of the steps that count as on-policy
        self._fresh_of = range(0)  # what was alive when they were found
        self._repeats = 0

    def _insert(self, table: Chunk) -> range:
        if ON_POLICY_COLUMN in table.extras:
            raise ContractError(f"agents send a column named {ON_POLICY_COLUMN!r}, a name that this replay uses itself")
        return super()._insert(table)

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        alive, number = self.alive, self.on_policy_rows
        numbers = sample_uniform(self.rng, alive.start, alive.stop, batch_size)
        probability = np.full(batch_size, 1.0 / len(alive))
        if number:
            fresh = self._find_fresh()
            self._repeats += max(number - len(fresh), 0)
            numbers[:number] = self.rng.choice(fresh, number, replace=len(fresh) < number)
            probability[:number] = 1.0 / len(fresh)
        return numbers, probability

    def aggregate_batch(self, gathered: Gathered) -> Batch:
        gathered.extras[ON_POLICY_COLUMN] = np.arange(len(gathered.reward)) < self.on_policy_rows
        return super().aggregate_batch(gathered)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "replay/on_policy_candidates_count": len(self._fresh),
            "replay/on_policy_repeats_total": self._repeats,
        }

    def _find_fresh(self) -> NDArray[np.int64]:
        alive = self.alive
        if alive != self._fresh_of and self.store is not None:
            newest = np.arange(max(alive.stop - self._window, alive.start), alive.stop)
            version = self.store.transitions.take("version", newest)
            self._fresh = newest[version >= version.max() - self._max_version_lag]
            self._fresh_of = alive
        return self._fresh
