"""BatchMaker: how batches come out of a store, of transitions [B] or of trajectories [T, B].

The engine's one collaborator that knows which of both a replay hands out. What it gathers are NumPy columns, which
`Replay.aggregate_batch` may change and `to_batch` wraps as tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.experience.codec import Contract
from surreal.replay.store.rows import Observations
from surreal.replay.store.storage import Gathered, Request, TransitionStore
from surreal.replay.trajectories.unrolling import GatheredTrajectories, TrajectoryRequest, TrajectoryStore

R = TypeVar("R", bound=Gathered | GatheredTrajectories)
B = TypeVar("B", bound=Batch | TrajectoryBatch)


#: What a batch holds: a `Batch` of transitions, or a `TrajectoryBatch` of sequences, of on-policy trajectories, or
#: mixed of both.
HandsOut = Literal["transitions", "sequences", "trajectories", "mixed"]


class BatchMaker(ABC, Generic[R, B]):
    """Makes the batches of one store; used by the replay's thread.

    Args:
        store: holds the transitions.
        pin_memory: make tensors in page-locked memory; needs CUDA.
    """

    def __init__(self, store: TransitionStore, *, pin_memory: bool) -> None:
        self.store = store
        self.pin_memory = pin_memory

    @property
    @abstractmethod
    def num_asked(self) -> int:
        """Batches that were asked for and not collected."""

    @abstractmethod
    def ask(self, numbers: NDArray[np.int64], probability: NDArray[np.float64]) -> None:
        """Ask for what has these sequence numbers [B] and was sampled with these probabilities [B]."""

    @abstractmethod
    def collect(self) -> R | None:
        """What the batch that was asked for first holds; None if observations of it are gone."""

    @abstractmethod
    def to_batch(self, gathered: R) -> B:
        """Make tensors of what was gathered, which share its memory unless it is pinned."""


class TransitionMaker(BatchMaker[Gathered, Batch]):
    """Batches of n-step transitions; arguments as in `TransitionStore` and `BatchMaker`."""

    def __init__(
        self,
        contract: Contract,
        observations: Observations,
        *,
        capacity: int,
        n_step: int,
        gamma: float,
        pin_memory: bool,
    ) -> None:
        store = TransitionStore(contract, capacity=capacity, n_step=n_step, gamma=gamma, observations=observations)
        super().__init__(store, pin_memory=pin_memory)
        self._asked: deque[Request] = deque()

    @property
    def num_asked(self) -> int:
        return len(self._asked)

    def ask(self, numbers: NDArray[np.int64], probability: NDArray[np.float64]) -> None:
        self._asked.append(self.store.request(numbers, probability))

    def collect(self) -> Gathered | None:
        return self.store.collect(self._asked.popleft())

    def to_batch(self, gathered: Gathered) -> Batch:
        return to_batch(gathered, self.store.contract.stacked_obs, pin_memory=self.pin_memory)


class TrajectoryMaker(BatchMaker[GatheredTrajectories, TrajectoryBatch]):
    """Batches of trajectories, each named by its first step; arguments as in `TrajectoryStore` and `BatchMaker`.

    Args:
        steps: T, of each: its steps, or its rows.
        counts_rows: whether they are rows, ends of episodes included.
        burn_in: of them at the start, which only bring the recurrent state up to date.
    """

    store: TrajectoryStore

    def __init__(
        self,
        contract: Contract,
        observations: Observations,
        *,
        capacity: int,
        gamma: float,
        steps: int,
        counts_rows: bool,
        burn_in: int,
        pin_memory: bool,
    ) -> None:
        store = TrajectoryStore(contract, capacity=capacity, gamma=gamma, observations=observations)
        super().__init__(store, pin_memory=pin_memory)
        self._steps = steps
        self._counts_rows = counts_rows
        self._burn_in = burn_in
        self._asked: deque[TrajectoryRequest] = deque()

    @property
    def num_asked(self) -> int:
        return len(self._asked)

    def ask(self, numbers: NDArray[np.int64], probability: NDArray[np.float64]) -> None:
        steps = None if self._counts_rows else np.full(len(numbers), self._steps)
        unrolled = self.store.unroll(numbers, self._steps, steps)
        self._asked.append(self.store.request_unrolled(unrolled, probability))

    def collect(self) -> GatheredTrajectories | None:
        return self.store.collect_unrolled(self._asked.popleft())

    def to_batch(self, gathered: GatheredTrajectories) -> TrajectoryBatch:
        spec = self.store.contract.stacked_obs
        return to_trajectory_batch(gathered, spec, burn_in=self._burn_in, pin_memory=self.pin_memory)


def to_batch(gathered: Gathered, spec: ObsSpec, *, pin_memory: bool = False) -> Batch:
    """Wrap freshly gathered transitions as tensors.

    Args:
        gathered: what the batch holds; the memory is shared, nothing is copied unless it is pinned. Pinned tensors are
            contiguous.
        spec: leaves of an observation.
        pin_memory: copy into page-locked memory, from which a GPU fetches a batch while it computes; needs CUDA.
    """
    wrap = _pinned if pin_memory else torch.from_numpy
    return Batch(
        obs=spec.unflatten([wrap(leaf) for leaf in gathered.obs]),
        action=wrap(gathered.action),
        reward=wrap(gathered.reward),
        discount=wrap(gathered.discount),
        next_obs=spec.unflatten([wrap(leaf) for leaf in gathered.next_obs]),
        extras={name: wrap(column) for name, column in gathered.extras.items()},
        sample_info=gathered.sample_info,
    )


def to_trajectory_batch(
    gathered: GatheredTrajectories, spec: ObsSpec, *, burn_in: int = 0, pin_memory: bool = False
) -> TrajectoryBatch:
    """Wrap freshly gathered trajectories as tensors; arguments as in `to_batch` and `TrajectoryMaker`."""
    wrap = _pinned if pin_memory else torch.from_numpy
    return TrajectoryBatch(
        obs=spec.unflatten([wrap(leaf) for leaf in gathered.obs]),
        action=wrap(gathered.action),
        reward=wrap(gathered.reward),
        discount=wrap(gathered.discount),
        mask=wrap(gathered.is_step.astype(np.float32)),
        is_first=wrap(gathered.is_first),
        terminated=wrap(gathered.terminated),
        truncated=wrap(gathered.truncated),
        version=wrap(gathered.version),
        extras={name: wrap(column) for name, column in gathered.extras.items()},
        initial_state={name: wrap(column) for name, column in gathered.initial_state.items()},
        sample_info=gathered.sample_info,
        burn_in=burn_in,
    )


def _pinned(array: NDArray[Any]) -> torch.Tensor:
    """Copy into page-locked memory, in one piece: what has gaps cannot be moved to a GPU without waiting."""
    tensor = torch.from_numpy(array)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
