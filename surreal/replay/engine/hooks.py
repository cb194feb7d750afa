"""Hooks: what an engine needs of the replay that it drives; `Replay` has them, and says what they do."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.replay.engine.batches import BatchMaker
from surreal.replay.engine.sampling import Sampled
from surreal.replay.store.rows import Observations
from surreal.replay.stream.limiter import SamplesPerInsert

B_co = TypeVar("B_co", bound=Batch | TrajectoryBatch, covariant=True)


class Hooks(Protocol[B_co]):
    """What a replay is set to, and decides on the engine's thread."""

    batch_size: int
    start_size: int
    n_step: int
    steps_per_sample: int
    limiter: SamplesPerInsert | None

    @property
    def makes_own_batches(self) -> bool: ...

    def start_sample_condition(self) -> bool: ...

    def aggregate_batch(self, gathered: Any) -> B_co: ...

    def _insert(self, table: Chunk) -> range | None: ...

    def _sample(self, batch_size: int) -> Any: ...

    def _sample_again(self, numbers: NDArray[np.int64]) -> Sampled: ...

    def _give_back(self, numbers: NDArray[np.int64]) -> None: ...

    def _evict(self) -> int: ...

    def _may_take_in(self, shard: int) -> bool: ...

    def _make_batches(self, contract: Contract, observations: Observations) -> BatchMaker[Any, Any]: ...

    def _count_samples(self, gathered: Any) -> int: ...
