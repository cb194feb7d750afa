"""Prioritized: proportional prioritization (Schaul et al. 2016, arXiv:1511.05952), for any replay of a window.

`PrioritizedReplay` draws transitions by it, `PrioritizedSequenceReplay` sequences.

Transition i is sampled with P(i) = p_i^alpha / sum_k p_k^alpha (eq. 1), stratified as in section 3.3; its priority is
p_i = |TD error| + epsilon. Importance weights w_i = (N P(i))^-beta / max_j w_j correct the bias of that (section 3.4).
The paper leaves open whether j goes over the batch or the whole memory. Here it is the batch: it needs no second tree,
and scales an update only downwards too. N cancels: w_i = (P(i) / min_j P(j))^-beta.

The weights are `batch.extras["weight"]` [B] float32, which the learner multiplies into the loss of each sample. Its TD
errors come back by `update_priorities`, from its own thread, and wait in a bounded queue for the replay's thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ContractError
from surreal.base.ranges import PositiveInt, PositiveShare, Share, checked
from surreal.base.schedules import ConstantSchedule, LinearSchedule, ScheduleSettings, read_schedule
from surreal.base.types import Batch, SampleInfo
from surreal.base.values import LARGEST
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.data_contract import PRIORITY_COLUMN
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.base import Replay
from surreal.replay.batches import B
from surreal.replay.store.priorities import SavedPriorities, SumTree, read_priorities, write_priorities

#: Updates that may wait for the replay's thread; it takes them all before each batch, so there are seldom two.
_MAX_PENDING = 256


class Prioritized(Replay[B]):
    """Samples transitions with large errors more often; a base class to put before that of a replay.

    Each transition has a priority: at first the agent's, or the largest so far. Where batches hold sequences, it is
    that of the sequence that begins with the transition.

    Args:
        priority_exponent: alpha; 0 samples uniformly, raising it favors large errors more.
        importance_exponent: beta at the start; 1 corrects the bias of the sampling fully, 0 not at all. A schedule over
            the sampled batches, such as points [[0, 0.4], [100000, 1]], takes the place of all three settings.
        importance_exponent_end: beta at the end of the annealing.
        importance_exponent_steps: batches sampled in the whole run (so: updates) until beta is at its end; None
            keeps it at `importance_exponent`. The count survives a restart.
        priority_epsilon: added to |TD error|; raising it draws transitions without error more often.

    Raises:
        ValueError: an argument is out of range, or the settings cannot work together.
    """

    wants_priorities = True

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        priority_exponent: Share = 0.6,
        importance_exponent: Share | ScheduleSettings = 0.4,
        importance_exponent_end: Share = 1.0,
        importance_exponent_steps: PositiveInt | None = 100_000,
        priority_epsilon: PositiveShare = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(client, **options)
        self.priority_exponent = priority_exponent
        self.priority_epsilon = priority_epsilon
        self._beta: Callable[[int], float]
        if isinstance(importance_exponent, Sequence | Mapping):
            self._beta = read_schedule("importance_exponent", importance_exponent, Share)
        elif importance_exponent_steps is None:
            self._beta = ConstantSchedule(importance_exponent)
        else:
            self._beta = LinearSchedule(importance_exponent, importance_exponent_end, importance_exponent_steps)
        self._pending: deque[tuple[NDArray[np.int64], NDArray[np.float64]]] = deque()
        # Guards the tree and the list of chunks, because another thread may save the priorities.
        self._lock = threading.Lock()
        self._tree = SumTree(1)  # leaf (sequence number modulo capacity): p^alpha; 0 where nothing is alive
        self._members: deque[tuple[str, range]] = deque()  # chunk id, its sequence numbers
        self._max_leaf = 1.0
        self._saved: SavedPriorities | None = None
        self._late = self._refused = self._dropped = self._restored = 0

    @property
    def importance_exponent(self) -> float:
        """Beta of the next batch."""
        return self._beta(self.num_samples // (self.batch_size * self.steps_per_sample))

    @property
    def _largest_leaf(self) -> float:
        return float((LARGEST + self.priority_epsilon) ** self.priority_exponent)

    # -- from the learner's thread -----------------------------------------------------------------------------------

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        """Queue the |TD error| [B] of a batch, or another measure of priority; never waits.

        What is not finite, negative or too large is passed over.

        Raises:
            ValueError: the shape is not the batch's.
        """
        if priorities.shape != sample_info.generation.shape:
            expected = sample_info.generation.shape
            raise ValueError(f"priorities have shape {priorities.shape}; those of this batch have {expected}")
        if len(self._pending) >= _MAX_PENDING:
            self._dropped += len(priorities)
            return
        self._pending.append((sample_info.generation, priorities.astype(np.float64)))

    def save_priorities(self, path: str | os.PathLike[str]) -> int:
        """Write all priorities to a file, whole or not at all, from any thread; raises `CheckpointError`.

        Returns:
            How many there were.
        """
        with self._lock:
            members = list(self._members)
            leaves = self._tree.leaves
            max_leaf = self._max_leaf
        chunks = {chunk_id: leaves[_slots(owned, len(leaves))] for chunk_id, owned in members}
        write_priorities(path, SavedPriorities(self.priority_exponent, max_leaf, chunks))
        return sum(len(owned) for _, owned in members)

    def load_priorities(self, path: str | os.PathLike[str]) -> int:
        """Read the priorities that chunks get when they arrive; before `start_threads`. Raises `CheckpointError`.

        Returns:
            Of how many transitions the file knows.
        """
        self._saved = read_priorities(path, exponent=self.priority_exponent)
        # Also where none of the file's chunks is left: what is new must not fall behind the errors of the rest.
        if self._saved.max_leaf <= self._largest_leaf:
            self._max_leaf = max(self._max_leaf, self._saved.max_leaf)
        return sum(len(leaves) for leaves in self._saved.chunks.values())

    # -- hooks: on the replay's thread -------------------------------------------------------------------------------

    def _insert(self, table: Chunk) -> range:
        if "weight" in table.extras:
            raise ContractError("agents send a column named 'weight', which is the importance weights' name")
        before = self.alive
        numbers = super()._insert(table)
        leaves = self._initial_leaves(table, len(numbers))
        with self._lock:
            self._fit(before)
            self._set(numbers, leaves)
            self._members.append((table.chunk_id, numbers))
        return numbers

    def _evict(self) -> int:
        number = super()._evict()
        if number:
            with self._lock:
                gone = [self._members.popleft()[1] for _ in range(number)]
                self._set(range(gone[0].start, gone[-1].stop), 0.0)
        return number

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        self._apply_updates()
        return self._draw(batch_size)

    def _draw(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Sample transitions from the current tree, in order of their sequence numbers."""
        leaves, values = self._tree.sample(number, self.rng)
        oldest = self.alive.start
        numbers = oldest + (leaves - oldest) % self._tree.capacity
        return numbers, values / self._tree.total

    def aggregate_batch(self, gathered: Any) -> B:
        info = gathered.sample_info
        weight = (info.probability / info.probability.min()) ** -self.importance_exponent
        gathered.extras["weight"] = weight.astype(np.float32)
        priority = self._to_priority(info.probability * self._tree.total)
        return super().aggregate_batch(gathered._replace(sample_info=info._replace(priority=priority)))

    def metrics(self) -> dict[str, float]:
        with self._lock:  # the tree keeps sums that it works out, as of one moment
            total = self._tree.total
        return super().metrics() | {
            "replay/importance_exponent": self.importance_exponent,
            "replay/priority_sum": total,
            "replay/priority_max": float(self._to_priority(np.array(self._max_leaf))),
            "replay/late_priorities_total": self._late,
            "replay/refused_priorities_total": self._refused,
            "replay/dropped_priorities_total": self._dropped,
            "replay/restored_priorities_total": self._restored,
        }

    # -- inside ------------------------------------------------------------------------------------------------------

    def _initial_leaves(self, table: Chunk, number: int) -> NDArray[np.float64]:
        saved = self._saved.chunks.pop(table.chunk_id, None) if self._saved is not None else None
        if saved is not None and len(saved) == number:
            is_usable = saved <= self._largest_leaf
            self._refused += number - int(np.count_nonzero(is_usable))
            self._restored += int(np.count_nonzero(is_usable))
            return np.where(is_usable, saved, self._max_leaf)
        sent = table.extras.get(PRIORITY_COLUMN)
        if sent is None:
            return np.full(number, self._max_leaf)
        if sent.ndim != 1:
            raise ContractError(
                f"the column {PRIORITY_COLUMN!r} has shape {sent.shape[1:]} a step; it must be a number"
            )
        leaves, is_usable = self._to_leaves(sent[table.own].astype(np.float64))
        self._note_max(leaves[is_usable])
        return np.where(is_usable, leaves, self._max_leaf)

    def _apply_updates(self) -> None:
        if not self._pending:
            return
        updates = [self._pending.popleft() for _ in range(len(self._pending))]
        numbers, errors = (np.concatenate(parts) for parts in zip(*updates, strict=True))
        alive = self.alive
        is_alive = (numbers >= alive.start) & (numbers < alive.stop)
        leaves, is_usable = self._to_leaves(errors)
        is_taken = is_alive & is_usable
        if not is_taken.all():
            self._late += len(is_alive) - int(np.count_nonzero(is_alive))
            numbers, leaves = numbers[is_taken], leaves[is_taken]
        self._note_max(leaves)
        with self._lock:
            self._tree.set(numbers % self._tree.capacity, leaves)

    def _to_leaves(self, errors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Leaves of these |TD errors|, and which of them make sense: no NaN, nothing negative or too large."""
        is_usable = (errors >= 0.0) & (errors <= LARGEST)
        if not is_usable.all():
            self._refused += len(errors) - int(np.count_nonzero(is_usable))
            errors = np.where(is_usable, errors, 0.0)
        return (errors + self.priority_epsilon) ** self.priority_exponent, is_usable

    def _note_max(self, leaves: NDArray[np.float64]) -> None:
        if len(leaves):
            self._max_leaf = max(self._max_leaf, float(leaves.max()))

    def _to_priority(self, leaves: NDArray[np.float64]) -> NDArray[np.float64]:
        alpha = self.priority_exponent
        return leaves ** (1.0 / alpha) if alpha else np.ones_like(leaves)

    def _set(self, numbers: range, leaves: NDArray[np.float64] | float) -> None:
        self._tree.set(_slots(numbers, self._tree.capacity), leaves)

    def _fit(self, before: range) -> None:
        """Resize the tree to one leaf per slot of the store, which may have grown while it held `before`."""
        size = self.store.transitions.size if self.store is not None else 1
        if self._tree.capacity != size:
            leaves = self._tree.leaves[_slots(before, self._tree.capacity)]
            self._tree = SumTree(size)
            self._set(before, leaves)


class PrioritizedReplay(Prioritized[Batch]):
    """Draws the transitions that surprised the learner more often. Arguments as in `Prioritized`."""


def _slots(numbers: range, size: int) -> NDArray[np.int64]:
    return np.arange(numbers.start, numbers.stop) % size
