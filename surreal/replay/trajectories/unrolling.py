"""Trajectories out of stored steps: consecutive steps of one lane, unrolled to the same number of rows.

A trajectory begins at a step and follows its lane, over chunks and over ends of episodes. It has a number of rows (a
sequence of a replay), or a number of steps; then a batch has as many rows as the one with the most ends inside needs:

    row        0      1      2      3      4      5      6    | 7 = T
    step       s0     s1     s2     -      s3     s4     s5   |
    obs        o0     o1     o2     o3'    o4     o5     o6   | o7
    mask       1      1      1      0      1      1      1    |
    is_first   0      0      0      0      1      0      0    | 0
    reward     r1     r2     r3     0      r5     r6     r7   |
    discount   g      g      g (*)  0      g      g      g    |

The episode ended with s2: o3' is its true final observation, in a separate row from which no action was taken. So
obs[t + 1] is always the result of step t: bootstrap values, models of the dynamics and recurrent states need no special
case. (*) gamma if the episode was truncated, 0 if it terminated; never merged. If a lane breaks off, its remaining rows
are such rows too, all with the last observation.

With the mask, every recursion over time is right at these rows without special cases. Delta and generalized advantage
(arXiv:1506.02438), V-trace (arXiv:1802.01561), and the discounted return:

    delta_t = mask_t * (r_t + discount_t * V(obs[t+1]) - V(obs[t]))
    A_t     = delta_t + lambda * discount_t * A_{t+1}           is 0 at such a row: traces end there
    R_t     = mask_t * (r_t + discount_t * R_{t+1}) + (1 - mask_t) * V(obs[t]),     R_T = V(obs[T])

Such a row never stands first; it has action, extras and version of the step before it, so they are possible values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import SampleInfo
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.replay.store.rows import Observations, Ring, sample_uniform
from surreal.replay.store.storage import Request, StoredChunk, TransitionStore, stack_rows
from surreal.replay.trajectories.lanes import Lanes, Run

#: Extras with this name, or with names that begin with it and a dot, are recurrent state before the step.
STATE_COLUMN = "state"
_TRUNCATED = 2
_TERMINATED = 1
_UNKNOWN = np.iinfo(np.int64).max
_FORGET_INTERVAL = 256


class Unrolled(NamedTuple):
    """The step in each row."""

    number: NDArray[np.int64]  #: [T, B] of the step; of the step before it, where the row is none
    is_step: NDArray[np.bool_]  #: [T, B] False: a final observation


class GatheredTrajectories(NamedTuple):
    """Trajectories of a batch as NumPy columns, before they become tensors; more in `TrajectoryBatch`."""

    number: NDArray[np.int64]  #: [T, B] as in `Unrolled`
    is_step: NDArray[np.bool_]  #: [T, B]
    obs: list[NDArray[Any]]  #: [T + 1, B, *obs_shape], one array a leaf
    action: NDArray[Any]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    is_first: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    version: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]
    initial_state: dict[str, NDArray[Any]]
    sample_info: SampleInfo


class TrajectoryStore(TransitionStore):
    """One-step transitions, and the links between them.

    Args:
        length: T of the trajectories to gather, >= 1.
        counts_rows: whether T counts rows, ends of episodes included; otherwise, it counts steps.
        indexes_starts: whether to keep `starts`.
        observations: the observation rows; None: mirrored here.

    Attributes:
        runs: runs of the chunk that was inserted last.
        starts: steps after which T rows follow.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        capacity: int,
        gamma: float,
        length: int = 1,
        counts_rows: bool = False,
        indexes_starts: bool = False,
        observations: Observations | None = None,
    ) -> None:
        super().__init__(contract, capacity=capacity, n_step=1, gamma=gamma, observations=observations)
        self._length = length
        self._counts_rows = counts_rows
        links = {"next": ((), np.int64), "flags": ((), np.uint8), "is_first": ((), np.bool_)}
        self.links = Ring(links, self.transitions.size)
        self.lanes = Lanes()
        self.runs: list[Run] = []
        self.starts = StartIndex(length, self.transitions.size) if indexes_starts else None
        self._evicted = 0

    def insert(self, chunk: Chunk) -> range:
        """Copy a chunk in, and link its steps to those before them; returns the numbers of the steps it owns."""
        numbers, own = super().insert(chunk), chunk.own
        flags, step = chunk.columns["flags"][own], chunk.step[own]
        following = np.arange(numbers.start + 1, numbers.stop + 1)
        self.runs = self.lanes.add(chunk.chunk_id, numbers.start, chunk.env_slot[own], step, flags != 0)
        if self.runs:
            following[np.array([run.end for run in self.runs]) - 1 - numbers.start] = -1
        self.links.append({"next": following, "flags": flags, "is_first": step == 0}, len(numbers))
        for run in self.runs:
            if run.previous >= self.links.tail:
                self.links.columns["next"][run.previous % self.links.size] = run.begin
        if self.starts is not None:
            self.starts.append(len(numbers))
            for run in self.runs:
                self.starts.add(run, flags[run.begin - numbers.start : run.end - numbers.start] != 0)
        return numbers

    def evict(self, chunk: StoredChunk) -> None:
        """Free everything up to the end of this chunk, which has the oldest that are left."""
        super().evict(chunk)
        self.links.free_until(chunk.end)
        if self.starts is not None:
            self.starts.free_until(chunk.end)
        self._evicted += 1
        if self._evicted % _FORGET_INTERVAL == 0:
            self.lanes.forget(self.links.tail)

    def unroll(self, starts: NDArray[np.int64], length: int, steps: NDArray[np.int64] | None = None) -> Unrolled:
        """Follow the links from these steps [B] for `length` rows, or more where `steps` is given.

        `steps` [B] are those of each trajectory; the rows after them are filled. None: as many as the rows hold.
        """
        number: list[NDArray[np.int64]] = []
        is_step: list[NDArray[np.bool_]] = []
        current, is_final = starts, np.zeros(len(starts), np.bool_)
        left = np.full(len(starts), length) if steps is None else steps.copy()
        is_over = is_final
        following, flags = self.links.columns["next"], self.links.columns["flags"]
        while len(number) < length or (steps is not None and not is_over.all()):
            number.append(current)
            is_step.append(~is_final)
            left = left - ~is_final
            slot = current % self.links.size
            after = following.take(slot)
            is_over = (left == 0) | (after < 0)
            # Behind a step that ended its episode stands the final observation; behind that, the next episode.
            is_final = (~is_final & (flags.take(slot) != 0)) | is_over
            current = np.where(is_final, current, after)
        return Unrolled(np.stack(number), np.stack(is_step))

    def request(self, indices: NDArray[np.int64], probability: NDArray[np.float64]) -> Request:
        """Ask for the trajectories that begin with these steps [B]; `collect` returns them, in this order."""
        steps = None if self._counts_rows else np.full(len(indices), self._length)
        return self.request_unrolled(self.unroll(indices, self._length, steps), probability)

    def request_unrolled(self, unrolled: Unrolled, probability: NDArray[np.float64]) -> Request:
        """Ask for trajectories that were sampled with these probabilities [B]."""
        number, is_step = unrolled
        starts, found = number[0], self.transitions.take_records(number)
        version = found["version"].astype(np.int64)
        known = np.where(is_step & (version >= 0), version, _UNKNOWN).min(axis=0)
        flags = np.where(is_step, self.links.take("flags", number), np.uint8(0))
        is_first = np.zeros((len(number) + 1, number.shape[1]), np.bool_)
        is_first[:-1] = self.links.take("is_first", number) & is_step
        zero = np.float32(0.0)
        extras: dict[str, NDArray[Any]] = {}
        state: dict[str, NDArray[Any]] = {}
        for extra in self.contract.extras:
            if extra.name == STATE_COLUMN or extra.name.startswith(STATE_COLUMN + "."):
                state[extra.name] = found[f"extra.{extra.name}"][0].copy()
            else:
                extras[extra.name] = found[f"extra.{extra.name}"].copy()
        info = SampleInfo(
            generation=starts,
            probability=probability,
            version=np.where(known == _UNKNOWN, -1, known),
            age_steps=self.transitions.head - 1 - starts,
        )
        gathered = GatheredTrajectories(
            number=number,
            is_step=is_step,
            obs=[],
            action=found["action"].copy(),
            reward=np.where(is_step, found["reward"], zero),
            discount=np.where(is_step, found["discount"], zero),
            is_first=is_first,
            terminated=(flags & _TERMINATED) != 0,
            truncated=(flags & _TRUNCATED) != 0,
            version=version,
            extras=extras,
            initial_state=state,
            sample_info=info,
        )
        rows = self._rows_of(found, is_step)
        self.observations.ask(rows)
        return Request(gathered, rows)

    def collect(self, request: Request) -> GatheredTrajectories | None:
        """Wait for the observations of the oldest request; None if some are gone. The arrays belong to the caller."""
        found = None if request.rows is None else self.observations.collect(request.rows)
        gathered: GatheredTrajectories = request.gathered
        return None if found is None else gathered._replace(obs=found)

    def _rows_of(self, found: NDArray[np.void], is_step: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Observation rows [T + 1, B] or [T + 1, B, stack]: those of each row, and the result of the last one."""
        rows, stack = _and_after(found["row"], is_step), self.contract.stack
        return rows if stack == 1 else stack_rows(rows, _and_after(found["depth"], is_step), stack)


def _and_after(numbers: NDArray[Any], is_step: NDArray[np.bool_]) -> NDArray[Any]:
    """[T + 1, B] numbers of the rows, one higher for final observations, and that after the last row."""
    return np.concatenate([numbers + ~is_step, numbers[-1:] + 1])


#: How often starts are drawn before all of them are listed.
_MAX_TRIES = 8


class StartIndex:
    """The steps that begin a whole sequence.

    Args:
        length: L, rows of a sequence.
        size: steps expected to be alive.

    Attributes:
        count: number of starts.
    """

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.count = 0
        self._ring = Ring({"is_start": ((), np.bool_)}, size)
        # By the last step of each lane: the steps that need further rows, and the number of rows from each to the end.
        self._waiting: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def append(self, steps: int) -> None:
        self._ring.append({"is_start": np.zeros(steps, np.bool_)}, steps)

    def add(self, run: Run, has_ended: NDArray[np.bool_]) -> None:
        """Take in a run of a chunk for whose steps there is room; an episode ended with the steps [n] of
        `has_ended`.
        """
        rows = 1 + has_ended.astype(np.int64)
        behind = np.cumsum(rows)
        numbers, ahead = np.arange(run.begin, run.end), behind[-1] - (behind - rows)
        before = self._waiting.pop(run.previous, None)
        if before is not None:
            numbers = np.concatenate([before[0], numbers])
            ahead = np.concatenate([before[1] + behind[-1], ahead])
        is_whole = ahead >= self.length
        whole = numbers[is_whole]
        whole = whole[whole >= self._ring.tail]
        self._ring.columns["is_start"][whole % self._ring.size] = True
        self.count += len(whole)
        self._waiting[run.end - 1] = numbers[~is_whole], ahead[~is_whole]

    def free_until(self, oldest: int) -> None:
        if oldest <= self._ring.tail:
            return
        gone = np.arange(self._ring.tail, oldest)
        self.count -= int(np.count_nonzero(self._ring.take("is_start", gone)))
        self._ring.free_until(oldest)
        for last in [last for last in self._waiting if last < oldest]:
            del self._waiting[last]

    def are_starts(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these living steps [n] begin a whole sequence."""
        found: NDArray[np.bool_] = self._ring.take("is_start", numbers)
        return found

    def sample(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """That many of the starts, uniformly, with replacement.

        Raises:
            ValueError: there is none.
        """
        if not self.count:
            raise ValueError("no sequence can begin anywhere")
        found = np.empty(0, np.int64)
        for _ in range(_MAX_TRIES):
            tried = sample_uniform(rng, self._ring.tail, self._ring.head, 2 * number)
            found = np.concatenate([found, tried[self._ring.take("is_start", tried)]])
            if len(found) >= number:
                return found[:number]
        alive = np.arange(self._ring.tail, self._ring.head)
        return rng.choice(alive[self._ring.take("is_start", alive)], number)
