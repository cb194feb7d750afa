"""HindsightStore: transitions whose goals are replaced when they are gathered, Andrychowicz et al. 2017.

A relabeled transition keeps its observations and its action. Its goal is what was achieved after a later step of its
episode ("future" in the paper), and its reward, and whether the episode terminates, follow from the new goal:

    goal     = achieved_goal after step j,      j uniform over t .. the episode's last known step
    reward   = compute_reward(achieved_goal after step t, goal, {})
    discount = gamma * (1 - compute_terminated(achieved_goal after step t, goal, {}))

See arXiv:1707.01495, section 3. An environment without `compute_terminated` keeps the recorded end.

`EpisodeIndex` finds, for any step, a later step of the same episode. Steps of an episode are spread over chunks,
between those of other environments. When an episode ends, the numbers of its steps are written next to each other into
one ring. Each step has its place there, and that of the episode's end, so that a draw takes two look-ups, however many
steps lie between.

An open episode is written whenever its length passes a power of two, which costs each step a constant on average. One
of more than `BLOCK_STEPS` steps counts as several of that length, so that it may be longer than the replay, or endless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ContractError, UserCodeError, describe_method
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.replay.store.rows import Leaves, Observations, Ring
from surreal.replay.store.storage import Gathered, Request, StoredChunk, TransitionStore
from surreal.replay.trajectories.lanes import LaneKey, Lanes, Run

#: The function (achieved_goal [N, ...], desired_goal [N, ...], info) -> [N] of an environment with goals.
GoalFunction = Callable[[NDArray[Any], NDArray[Any], dict[str, Any]], Any]

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class HindsightStore(TransitionStore):
    """One-step transitions, of which a share is relabeled; raises `ContractError` if they have no goals.

    Args:
        her_ratio: probability that a transition is relabeled.
        compute_reward: rewards of goals.
        compute_terminated: whether goals end their episodes; None: as recorded.
        observations: the observation rows; None: mirrored here.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        capacity: int,
        gamma: float,
        her_ratio: float,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None,
        rng: np.random.Generator,
        observations: Observations | None = None,
    ) -> None:
        names = [leaf.name for leaf in contract.obs.leaves]
        if ACHIEVED not in names or DESIRED not in names:
            problem = f"observations have {', '.join(name or 'one array' for name in names)}"
            raise ContractError(f"{problem}; hindsight needs a Dict with {ACHIEVED} and {DESIRED}, an array each")
        if contract.stack > 1:
            raise ContractError(f"observations are stacks of {contract.stack} frames; hindsight needs frame_stack 1")
        super().__init__(contract, capacity=capacity, n_step=1, gamma=gamma, observations=observations)
        self._achieved, self._desired = names.index(ACHIEVED), names.index(DESIRED)
        self._her_ratio = her_ratio
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated
        self._rng = rng
        self.episodes = EpisodeIndex(self.transitions.size)

    def insert(self, chunk: Chunk) -> range:
        numbers, own = super().insert(chunk), chunk.own
        has_ended = chunk.columns["flags"][own] != 0
        self.episodes.add(chunk.chunk_id, numbers.start, chunk.env_slot[own], chunk.step[own], has_ended)
        return numbers

    def evict(self, chunk: StoredChunk) -> None:
        super().evict(chunk)
        self.episodes.free_until(chunk.end)

    def _complete(self, request: Request, found: Leaves) -> Gathered:
        gathered: Gathered = super()._complete(request, found)
        rows = cast(NDArray[np.int64], request.rows)
        relabeled = rows[2] != rows[0]
        if relabeled.any():
            self._relabel(gathered, relabeled, found[self._achieved][2][relabeled])
        return gathered

    def _observation_rows(self, found: NDArray[np.void], indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows [3, ...]: of the observations, the next ones, and the goals; a transition's own if it keeps its goal."""
        both = super()._observation_rows(found, indices)
        later = self.transitions.take("row", self.episodes.draw_later(indices, self._rng)) + 1
        is_relabeled = self._rng.random(indices.shape) < self._her_ratio
        return np.concatenate((both, np.where(is_relabeled, later, both[0])[None]))

    def _relabel(self, gathered: Gathered, relabeled: NDArray[np.bool_], goal: NDArray[Any]) -> None:
        """Replace the goals of the marked transitions by these, [N, *goal_shape]."""
        gathered.obs[self._desired][relabeled] = goal
        gathered.next_obs[self._desired][relabeled] = goal
        achieved = gathered.next_obs[self._achieved][relabeled]
        gathered.reward[relabeled] = self._rewards(achieved, goal)
        if self._compute_terminated is not None:
            is_over = np.asarray(self._compute_terminated(achieved, goal, {}))
            if is_over.shape != (len(goal),):  # some only judge one goal at a time
                judged = (self._compute_terminated(*pair, {}) for pair in zip(achieved, goal, strict=True))
                is_over = np.fromiter(judged, np.bool_, len(goal))
            gathered.discount[relabeled] = np.where(is_over, np.float32(0.0), np.float32(self.gamma))

    def _rewards(self, achieved: NDArray[Any], goal: NDArray[Any]) -> NDArray[Any]:
        reward = np.asarray(self._compute_reward(achieved, goal, {}))
        if reward.shape != (len(goal),):
            raise UserCodeError(
                f"{describe_method(self._compute_reward)} gives shape {list(reward.shape)} for {len(goal)} goals "
                f"{list(goal.shape)}; it must give one reward for each, [{len(goal)}]"
            )
        return reward


BLOCK_STEPS = 1024
_FORGET_INTERVAL = 256


class EpisodeIndex:
    """The steps that are alive, by episode; `size` of them are expected at first. Used by one thread."""

    def __init__(self, size: int) -> None:
        self._steps = Ring({"base": ((), np.int64), "place": ((), np.int64), "end": ((), np.int64)}, size)
        self._members = Ring({"number": ((), np.int64)}, size)
        self._lanes = Lanes()
        self._open: dict[LaneKey, NDArray[np.int64]] = {}
        self._frees = 0

    @property
    def nbytes(self) -> int:
        return self._steps.nbytes + self._members.nbytes

    def add(
        self,
        chunk_id: str,
        first: int,
        env_ids: NDArray[np.int32],
        step: NDArray[np.int64],
        has_ended: NDArray[np.bool_],
    ) -> None:
        """Take in the steps that a chunk owns; arguments as for `Lanes.add`."""
        # From now on, nothing is written before the ring's head, so `base` bounds the places of these and later steps.
        base, none = np.full(len(step), self._members.head), np.zeros(len(step), np.int64)
        self._steps.append({"base": base, "place": none, "end": none}, len(step))
        for run in self._lanes.add(chunk_id, first, env_ids, step, has_ended):
            part = slice(run.begin - first, run.end - first)
            self._add_run(run, step[part] % BLOCK_STEPS, has_ended[part])

    def free_until(self, number: int) -> None:
        self._steps.free_until(number)
        base = int(self._steps.columns["base"][number % self._steps.size]) if len(self._steps) else self._members.head
        self._members.free_until(base)
        self._frees += 1
        if self._frees % _FORGET_INTERVAL == 0:
            self._lanes.forget(number)
            self._open = {lane: block for lane, block in self._open.items() if block[-1] >= number}

    def draw_later(self, number: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one of the steps of the same episode from each step on, itself included, uniformly. The numbers, of
        steps that are alive, may have any shape; those of steps that are too new to be in the index are unchanged.
        """
        place, end = self._steps.take("place", number), self._steps.take("end", number)
        ahead = (rng.random(number.shape) * (end - place)).astype(np.int64)
        return np.where(end > place, self._members.take("number", place + ahead), number)

    def _add_run(self, run: Run, step: NDArray[np.int64], has_ended: NDArray[np.bool_]) -> None:
        block = self._open.pop(run.lane, np.empty(0, np.int64))
        if run.previous < 0 and len(block):  # no step that follows belongs to it
            self._write(block)
            block = block[:0]
        is_last = has_ended | (step == BLOCK_STEPS - 1)
        begin = 0
        for end in (np.flatnonzero(is_last) + 1).tolist():
            self._write(np.concatenate((block, np.arange(run.begin + begin, run.begin + end))))
            block, begin = block[:0], end
        if begin < len(step):
            self._open[run.lane] = block = np.concatenate((block, np.arange(run.begin + begin, run.end)))
            if int(step[begin]).bit_length() != int(step[-1] + 1).bit_length():
                self._write(block)

    def _write(self, block: NDArray[np.int64]) -> None:
        alive = block[np.searchsorted(block, self._steps.tail) :]
        first = self._members.append({"number": alive}, len(alive))
        slots = alive % self._steps.size
        self._steps.columns["place"][slots] = np.arange(first, first + len(alive))
        self._steps.columns["end"][slots] = first + len(alive)
