"""Batches: sampled rows, the tensors of a batch, and the queue of batches made ahead of the learner.

A replay gathers NumPy columns, which `Replay.aggregate_batch` may change. `to_batch` and `to_trajectory_batch` wrap
them as tensors.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.base.errors import UserCodeError, describe_method
from surreal.base.pytorch import tensors_of
from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, TrajectoryBatch
from surreal.base.values import are_within
from surreal.replay.store.storage import Gathered
from surreal.replay.trajectories.unrolling import GatheredTrajectories

B = TypeVar("B", bound=Batch | TrajectoryBatch)

#: What a batch holds: a `Batch` of transitions, or a `TrajectoryBatch` of sequences, of on-policy trajectories, or
#: mixed of both.
HandsOut = Literal["transitions", "sequences", "trajectories", "mixed"]
#: Sequence numbers [B] of transitions, or of the first steps of trajectories; or these and the probability of each [B].
Sampled = NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]

_LEAST_PROBABILITY = float(np.nextafter(0.0, 1.0))
#: Batches made ahead if no number is given. Small ones, so that threads switch less often. Large ones, as many as stay
#: in a processor's cache: memory that was in use a moment ago is written several times faster.
_LEAST_AHEAD, _MOST_AHEAD, _AHEAD_BYTES = 2, 16, 16 << 20


def check_sampled(
    sampled: Sampled, method: Any, *, alive: range, batch_size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Refuse numbers that cannot be gathered with a `UserCodeError`: their rows would hold other transitions. `sampled`
    is the result of `method`, a `_sample`, for `batch_size` of the numbers that are `alive`.

    Return the numbers, and their probabilities; None if the transitions are equally probable.
    """
    numbers, probability = sampled if isinstance(sampled, tuple) else (sampled, None)
    problem = ""
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "iu":
        kind = numbers.dtype if isinstance(numbers, np.ndarray) else type(numbers).__name__
        problem = f"gives {kind}; it must give an array of integers"
    elif numbers.shape != (batch_size,):
        problem = f"gives numbers of shape {numbers.shape}; {batch_size} were asked for"
    elif numbers.item(numbers.argmin()) < alive.start or numbers.item(numbers.argmax()) >= alive.stop:
        wrong = numbers[(numbers < alive.start) | (numbers >= alive.stop)][0]
        problem = f"gives {wrong}; those that can be sampled now are {alive.start} .. {alive.stop - 1}"
    elif probability is not None and (
        probability.shape != (batch_size,) or not are_within(probability, _LEAST_PROBABILITY, 1.0 + 1e-9)
    ):
        problem = f"gives probabilities of shape {probability.shape} that are not all in (0, 1]"
    if problem:
        raise UserCodeError(f"{describe_method(method)} {problem}")
    return numbers, probability


def to_batch(gathered: Gathered, spec: ObsSpec, *, pin_memory: bool = False) -> Batch:
    """Wrap freshly gathered transitions as tensors, which share their memory. Pinned ones are contiguous, and copied
    into page-locked memory, from which a GPU fetches a batch while it computes; this needs CUDA.
    """
    wrap = _pinned if pin_memory else torch.from_numpy
    nest = itemgetter(0) if spec.structure is None else spec.unflatten
    obs, next_obs, action, reward, discount, _, extras, info = gathered
    return Batch(
        nest([*map(wrap, obs)]),
        wrap(action),
        wrap(reward),
        wrap(discount),
        nest([*map(wrap, next_obs)]),
        {name: wrap(column) for name, column in extras.items()},
        info,
    )


def to_trajectory_batch(
    gathered: GatheredTrajectories, spec: ObsSpec, *, burn_in: int = 0, pin_memory: bool = False
) -> TrajectoryBatch:
    """Wrap freshly gathered trajectories as tensors; arguments as in `to_batch` and `TrajectoryReplay`."""
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
    """Copy into contiguous page-locked memory: tensors with gaps cannot be moved to a GPU without waiting."""
    tensor = torch.from_numpy(array)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


class ExpFetcherQueue(Generic[B]):
    """A bounded queue of batches (by default 2 to 16, in 16 MiB); the replay fills it, and the learner empties it."""

    def __init__(self, prefetch: int | None) -> None:
        self._prefetch = prefetch or _LEAST_AHEAD
        self._is_open = prefetch is None
        self._made: list[B] = []  # for the learner, but not handed over
        self._ready: deque[B] = deque()
        self._has_ready = threading.Event()

    @property
    def room(self) -> int:
        return self._prefetch - len(self._ready) - len(self._made)

    def put(self, batch: B) -> None:
        """Add a batch for the next `hand_over`; the replay's thread asks for `room` before."""
        self._made.append(batch)
        if self._is_open:
            self._is_open = False
            fitting = _AHEAD_BYTES // max(sum(tensor.nbytes for tensor in tensors_of(batch)), 1)
            self._prefetch = min(max(fitting, _LEAST_AHEAD), _MOST_AHEAD)

    def hand_over(self) -> None:
        """Queue new batches for the learner, several at once: waking it costs as much as making a small batch."""
        if self._made:
            self._ready += self._made
            self._made.clear()
            self._has_ready.set()

    def dequeue(self, timeout_s: float) -> B | None:
        """Wait for the next batch and take it; None if none came in time."""
        return self._ready.popleft() if self._ready or self.wait(timeout_s) else None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next batch and leave it there; return whether one came in time. Only for the learner."""
        if self._ready:
            return True
        deadline_s = time.monotonic() + timeout_s
        while not self._ready:  # the event may be set late, for batches that are taken already
            self._has_ready.clear()
            if not self._ready and not self._has_ready.wait(max(0.0, deadline_s - time.monotonic())):
                break
        return bool(self._ready)

    @property
    def is_low(self) -> bool:
        """Whether half of it is empty, so that it is time to fill it again."""
        return 2 * len(self._ready) <= self._prefetch

    def __len__(self) -> int:
        return len(self._ready)
