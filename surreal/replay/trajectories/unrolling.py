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

from surreal.base.errors import ContractError
from surreal.base.types import SampleInfo
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.data_contract import is_state
from surreal.replay.store.rows import Leaves, Observations, Ring
from surreal.replay.store.storage import Request, StoredChunk, TransitionStore, stack_rows
from surreal.replay.trajectories.lanes import Lanes, Run, StartIndex

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
        start_interval: steps of an episode between those at which a trajectory may start.
        observations: the observation rows; None: mirrored here.

    Raises:
        ContractError: there would be no recurrent state where a trajectory may start.
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
        start_interval: int = 1,
        observations: Observations | None = None,
    ) -> None:
        if start_interval % contract.state_interval:
            raise ContractError(
                f"sequences begin every {start_interval} steps of an episode, but the stream has a recurrent state "
                f"only every {contract.state_interval}; send with a state_interval that divides {start_interval}"
            )
        super().__init__(contract, capacity=capacity, n_step=1, gamma=gamma, observations=observations)
        self._length = length
        self._start_interval = start_interval
        self._counts_rows = counts_rows
        links = {"next": ((), np.int64), "flags": ((), np.uint8), "is_first": ((), np.bool_)}
        if contract.sparse:
            links["states"] = ((), np.int64)  # how many came, up to that of the step
        self.links = Ring(links, self.transitions.size)
        states = {extra.name: (extra.shape, extra.dtype) for extra in contract.sparse}
        self.states = Ring(states, self.transitions.size // contract.state_interval)
        self.lanes = Lanes()
        self.runs: list[Run] = []  #: runs of the chunk that was inserted last
        #: steps after which T rows follow
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
        links = {"next": following, "flags": flags, "is_first": step == 0}
        if self.contract.sparse:
            has_state = step % self.contract.state_interval == 0
            links["states"] = self.states.head + np.cumsum(has_state)
            states = {name: chunk.extras[name][own[has_state]] for name in self.states.columns}
            self.states.append(states, int(has_state.sum()))
        self.links.append(links, len(numbers))
        for run in self.runs:
            if run.previous >= self.links.tail:
                self.links.columns["next"][run.previous % self.links.size] = run.begin
        if self.starts is not None:
            self.starts.append(len(numbers))
            for run in self.runs:
                of_run = slice(run.begin - numbers.start, run.end - numbers.start)
                self.starts.add(run, flags[of_run] != 0, step[of_run] % self._start_interval == 0)
        return numbers

    def evict(self, chunk: StoredChunk) -> None:
        """Free everything up to the end of this chunk, which has the oldest that are left."""
        super().evict(chunk)
        if self.contract.sparse and chunk.steps:
            self.states.free_until(int(self.links.take("states", np.array(chunk.end - 1))))
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
        at = self.links.take("states", starts) - 1 if self.contract.sparse else starts
        state = {name: self.states.take(name, at) for name in self.states.columns}
        for extra in self.extras:
            if is_state(extra.name):
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

    def _complete(self, request: Request, found: Leaves) -> GatheredTrajectories:
        gathered: GatheredTrajectories = request.gathered
        return gathered._replace(obs=found)

    def _rows_of(self, found: NDArray[np.void], is_step: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Observation rows [T + 1, B] or [T + 1, B, stack]: those of each row, and the result of the last one."""
        rows, stack = _and_after(found["row"], is_step), self.contract.stack
        return rows if stack == 1 else stack_rows(rows, _and_after(found["depth"], is_step), stack)


def _and_after(numbers: NDArray[Any], is_step: NDArray[np.bool_]) -> NDArray[Any]:
    """[T + 1, B] numbers of the rows, one higher for final observations, and that after the last row."""
    return np.concatenate([numbers + ~is_step, numbers[-1:] + 1])
