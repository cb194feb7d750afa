"""Data types that environments, agents, the data path and learners pass to each other.

This module imports neither torch nor Redis. Arrays have a leading batch axis: N rows of a pool, or B rows of a batch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: An observation, or a batch of them: an array, or nested dicts and tuples of arrays, as in the space.
Obs = Any

#: The key of `info`, and column, with an action that replaced the agent's; and the column that tells which steps have
#: one.
EXECUTED_ACTION, IS_INTERVENTION = "executed_action", "is_intervention"


class StepKind(enum.IntEnum):
    """Place of a row in its episode. A LAST row carries the final observation and takes no action."""

    FIRST = 0
    MID = 1
    LAST = 2


class StepBatch(NamedTuple):
    """Result of one `recv` of an environment pool: N rows, at most two of the same environment.

    The LAST rows come first (`num_last` of them), so the rows that need an action are the slice `[num_last:]`,
    and an environment that ended shows its LAST row before its next FIRST row. `reward`, `terminated` and
    `truncated` are the outcome of the previous action of that environment: zero and False on FIRST rows.
    """

    kind: NDArray[np.uint8]  #: [N] StepKind
    env_ids: NDArray[np.int64]  #: [N] slot of the environment, 0 <= id
    obs: Obs  #: [N, *obs_shape] per leaf
    reward: NDArray[np.float32]  #: [N]
    terminated: NDArray[np.bool_]  #: [N] the episode ended in a terminal state: no bootstrap
    truncated: NDArray[np.bool_]  #: [N] the episode was cut (time limit): bootstrap from the final observation
    explore: NDArray[np.bool_]  #: [N] whether the agent may explore in this row
    record: NDArray[np.bool_]  #: [N] whether this row is experience to be sent
    num_last: int  #: number of LAST rows, which come first
    info: Mapping[str, NDArray[Any]]  #: optional columns, [N, ...] each; see `surreal.envs.pools.base`
    closed_ids: NDArray[np.int64]  #: environments that closed without an observation: their episode is cut


class Action(NamedTuple):
    """Result of `Agent.act_batch` for N acting rows."""

    actions: NDArray[Any]  #: [N, *action_shape]
    extras: Mapping[str, NDArray[Any]]  #: columns recorded with the step: log-probability, value, recurrent state
    version: int  #: parameter version that acted
    outputs: Mapping[str, NDArray[Any]] = MappingProxyType({})  #: what environments asked for, see `EnvPool.wants`


class Gradients(NamedTuple):
    """Gradients of a loss, for the parameters of one group, as torch tensors."""

    group: str
    tensors: dict[str, Any]  #: by the parameter's name, without those that the loss does not depend on
    norm: Any = None  #: global norm of the whole gradient, a scalar, if `tensors` may be a part of it


class SampleInfo(NamedTuple):
    """Origin of the rows of a batch.

    `generation` identifies a transition in the replay's index. A priority for a transition that was evicted in the
    meantime is recognized by its `generation` and dropped.
    """

    generation: NDArray[np.int64]  #: [B] sequence number of the transition, never reused
    probability: NDArray[np.float64]  #: [B] probability of drawing each row
    version: NDArray[np.int64]  #: [B] parameter version that acted
    priority: NDArray[np.float64] | None = None  #: [B] p before its exponent; None without priorities
    #: [B] transitions inserted between it and its draw; all built-in replays set it
    age_steps: NDArray[np.int64] | None = None


class Batch(NamedTuple):
    """A minibatch of transitions as torch tensors, ready for `Learner.learn`.

    Do not write into observations: stacks of frames in `obs` and `next_obs` may share memory.
    """

    obs: Obs  #: [B, *obs_shape] per leaf, in the dtype of the observation
    action: Any  #: [B, *action_shape]
    reward: Any  #: [B] float32, sum of gamma^j r_j over the n steps
    discount: Any  #: [B] float32, gamma^h * (1 - terminated): h <= n steps were summed
    next_obs: Obs  #: [B, *obs_shape] per leaf, the observation to bootstrap from
    extras: Mapping[str, Any]  #: [B, ...] columns the agent added
    sample_info: SampleInfo


class TrajectoryBatch(NamedTuple):
    """B trajectories of T rows, time first, as torch tensors; `surreal.replay.trajectories.unrolling` draws one.

    obs[t + 1] always follows step t. A row where `mask` is 0 is not a step: it holds the final observation of an
    episode or pads a trajectory, and its reward and discount are 0. Multiply losses by `mask`.
    """

    obs: Obs  #: [T + 1, B, *obs_shape] per leaf; the last row is the bootstrap observation
    action: Any  #: [T, B, *action_shape]
    reward: Any  #: [T, B] float32
    discount: Any  #: [T, B] float32, gamma * (1 - terminated)
    mask: Any  #: [T, B] float32: 1 for a step, 0 for a final observation or padding
    is_first: Any  #: [T + 1, B] bool: an episode begins in this row, so recurrent state is reset before it
    terminated: Any  #: [T, B] bool: the step ended its episode in a terminal state
    truncated: Any  #: [T, B] bool: the episode was cut after the step; its discount stays gamma
    version: Any  #: [T, B] int64: parameter version that acted, -1 if unknown
    extras: Mapping[str, Any]  #: [T, B, ...] columns the agent added; `weight` [B] of a prioritized replay
    initial_state: Mapping[str, Any]  #: [B, ...] recurrent state before row 0: the columns `state`, `state.*`
    sample_info: SampleInfo  #: [B]; `version` is the oldest one of each trajectory
    burn_in: int = 0  #: rows at the start that only warm up the recurrent state
