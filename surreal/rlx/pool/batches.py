"""Rows of sessions as one batch: events of sessions, stacked frames, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import EXECUTED_ACTION, IS_INTERVENTION, Obs, StepBatch, StepKind
from surreal.envs.pools.base import empty_batch
from surreal.rlx.pool.held_steps import PENDING_STEP
from surreal.rlx.pool.states import Leaves


@dataclass(slots=True)
class LiveEvent:
    """A session waits for an action. One object serves all steps of a session, so it is not kept after the answer."""

    env_slot: int
    session: Any  #: handed back with the action
    #: `Leaves`, each of them an array or its bytes; without an observation space, the state as it came
    state: Any
    reward: float  #: of the action before; 0 at the beginning of an episode
    is_first: bool
    is_exploiting: bool
    executed: NDArray[Any] | None = None  #: what replaced the action before, in the agent's form
    policy: str | None = None  #: policy of its own that acts in the episode, see `RlxEnvPool`
    wants: tuple[str, ...] = ()  #: outputs of the policy to come with the actions of its episode
    step_id: int = 0  #: of the action before, if its reward may still change; 0: it is final


@dataclass(slots=True)
class LastEvent:
    """An episode ended in a final state."""

    env_slot: int
    state: Any
    reward: float
    is_terminated: bool  #: else truncated
    is_exploiting: bool
    episode_return: float  #: nan if it is not to be counted
    episode_length: int
    executed: NDArray[Any] | None = None  #: as of a `LiveEvent`
    step_id: int = 0  #: as of a `LiveEvent`


@dataclass(slots=True)
class FinalEvent:
    """A reward that might have changed is final."""

    step_id: int
    reward: float | None  #: what replaces the reward that was sent; None: that one stays


@dataclass(slots=True)
class CutEvent:
    """An episode was given up, or a session is gone."""

    env_slot: int
    has_episode: bool  #: whether there is an episode to be cut
    is_gone: bool  #: whether the env slot is to be released


Event = LiveEvent | LastEvent | CutEvent | FinalEvent


class FrameStacker:
    """Frames of one session; the first of an episode fills the stack."""

    def __init__(self, frame: ArraySpec, depth: int) -> None:
        self._shape = frame.shape
        self._stack: NDArray[np.generic] = np.zeros((depth, *frame.shape), frame.dtype)

    def push(self, leaves: Leaves, *, is_first: bool) -> Leaves:
        """Add a frame, and return the stack [depth, *shape], oldest first, in new memory."""
        frame = leaves[0].reshape(self._shape)
        if is_first:
            stack = np.repeat(frame[None], len(self._stack), axis=0)
        else:
            stack = np.concatenate((self._stack[1:], frame[None]))
        self._stack = stack
        return [stack]


_FIRST, _MID, _LAST = int(StepKind.FIRST), int(StepKind.MID), int(StepKind.LAST)
_NO_IDS: NDArray[np.int64] = np.zeros(0, np.int64)
_NO_INFO: dict[str, NDArray[Any]] = {}


@dataclass(eq=False)
class BatchBuilder:
    """Builds the batches of one pool, each in new memory."""

    obs_spec: ObsSpec  #: leaves of one observation
    is_raw: bool  #: whether states are put into an array of objects instead
    explore: bool
    record: bool

    def __post_init__(self) -> None:
        self._empty = empty_batch(self.obs_spec)
        if self.is_raw:
            self._empty = self._empty._replace(obs=np.empty(0, object))

    def build(self, ended: Sequence[LastEvent], live: Sequence[LiveEvent], cut: Sequence[int]) -> StepBatch:
        """Build a batch of ends, of rows that want an action, and of episodes that were given up."""
        count, num_last = len(ended) + len(live), len(ended)
        cut_ids = np.array(cut, np.int64) if cut else _NO_IDS
        if not count:
            return self._empty._replace(closed_ids=cut_ids) if cut else self._empty
        rows: list[LastEvent | LiveEvent] = [*ended, *live]
        kind = np.array([_FIRST if event.is_first else _MID for event in live], np.uint8)
        no, info = np.zeros(count, np.bool_), _NO_INFO
        terminated = truncated = no
        if ended:
            terminated, truncated = no.copy(), no.copy()
            kind = np.concatenate((np.full(num_last, _LAST, np.uint8), kind))
            terminated[:num_last] = [event.is_terminated for event in ended]
            truncated[:num_last] = ~terminated[:num_last]
            info = _episode_info(ended, count)
        if any(row.executed is not None for row in rows):
            info = {**info, **_executed_info(rows)}
        if any(row.step_id for row in rows):
            info = {**info, PENDING_STEP: np.array([row.step_id for row in rows], np.int64)}
        trains = np.array([not row.is_exploiting for row in rows], np.bool_)
        return StepBatch(
            kind=kind,
            env_ids=np.array([row.env_slot for row in rows], np.int64),
            obs=self._join([row.state for row in rows]),
            reward=np.array([row.reward for row in rows], np.float32),
            terminated=terminated,
            truncated=truncated,
            explore=trains if self.explore else no,
            record=trains if self.record else no,
            num_last=num_last,
            info=info,
            closed_ids=cut_ids,
        )

    def _join(self, states: list[Any]) -> Obs:
        count = len(states)
        if self.is_raw:
            objects = np.empty(count, object)
            for index, state in enumerate(states):
                objects[index] = state
            return objects
        leaves: list[NDArray[Any]] = []
        for index, leaf in enumerate(self.obs_spec.leaves):
            # Joined in one call; bytes, as most states come, need no more than that.
            rows: list[Any] = [
                row if type(row := state[index]) is bytes else np.ascontiguousarray(row, leaf.dtype) for state in states
            ]
            leaves.append(np.ndarray((count, *leaf.shape), leaf.dtype, bytearray().join(rows)))
        return self.obs_spec.unflatten(leaves)


def _executed_info(rows: Sequence[LastEvent | LiveEvent]) -> dict[str, NDArray[Any]]:
    replaced = [row.executed is not None for row in rows]
    nothing = np.zeros_like(next(row.executed for row in rows if row.executed is not None))
    executed = [nothing if row.executed is None else row.executed for row in rows]
    return {IS_INTERVENTION: np.array(replaced), EXECUTED_ACTION: np.stack(executed)}


def _episode_info(ended: Sequence[LastEvent], count: int) -> dict[str, NDArray[Any]]:
    episode_return, episode_length = np.full(count, np.nan), np.zeros(count, np.int64)
    episode_return[: len(ended)] = [event.episode_return for event in ended]
    episode_length[: len(ended)] = [event.episode_length for event in ended]
    return {"episode_return": episode_return, "episode_length": episode_length}
