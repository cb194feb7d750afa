"""SingleStepSender: the part of `ExpSender` that takes steps one at a time, from your own loop."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.base.types import Obs
from surreal.distributed.experience.data_contract import MAX_STACK, extra_specs
from surreal.distributed.experience.outbox import Outbox
from surreal.distributed.experience.row_log import RowLog
from surreal.distributed.experience.sharded_outbox import ShardedOutbox
from surreal.distributed.experience.single_steps import Amendments, SingleSteps

_NO_EXTRAS: Mapping[str, NDArray[Any]] = {}


class SingleStepSender(ABC):
    """Puts steps into the log; `ExpSender` defines how a chunk leaves it."""

    _frame_stack: int
    _has_interventions: bool
    _max_delay_s: float
    outbox: Outbox | ShardedOutbox
    _push: Callable[..., None]

    def __init__(self) -> None:
        self._log: RowLog | None = None
        self._flush_length = 0  # length of the log at which a chunk leaves
        self._oldest_s = 0.0  # when the oldest row came
        self._singles = SingleSteps()
        self._amendments = Amendments()

    @abstractmethod
    def _make_log(self, obs: Obs, action: ArraySpec, extras: tuple[ArraySpec, ...]) -> RowLog: ...
    @abstractmethod
    def _count_held(self, log: RowLog) -> int: ...
    @abstractmethod
    def _leave(self) -> None: ...

    def send(
        self,
        obs: Sequence[Obs],
        action: Any,
        reward: float,
        done: bool,
        info: Mapping[str, Any] | None = None,
        *,
        truncated: bool | None = None,
        extras: Mapping[str, Any] = _NO_EXTRAS,
        version: int = -1,
        amend_within_s: float | None = None,
    ) -> int:
        """Record one step: `send([obs, new_obs], action, reward, done, info)`.

        A step whose obs is not the new_obs of the previous step starts a new segment. `send([obs], ...)` is enough
        while the next step follows, and when the episode ends in a terminal state.

        Args:
            obs: [obs, new_obs], or [obs].
            action: the action taken in obs.
            reward: the reward that followed.
            done: whether the episode ended.
            info: `info["truncated"]` marks the end as a time limit. `info["phantom"]` marks the reset that `Env.step`
                makes after an end, which is not a step and is not recorded. `info["executed_action"]` replaces the
                action of a sender that records interventions. `info["frames"]` in the first call, a
                tuple, means that observations are stacks of that many frames, as `FrameStack` makes them.
            truncated: replaces `info["truncated"]`.
            extras: columns recorded with the step, the same keys in each.
            version: parameter version that acted, -1 if unknown.
            amend_within_s: how long the reward may be amended, s: the step and those after it are held back until
                `amend` is called for it, or so long. Raising it keeps more steps in memory. None: the reward is final.

        Returns:
            The step's number, for `amend`; -1 for a phantom.

        Raises:
            ValueError: shapes changed, or a truncated step, or one to be amended, has no new_obs.
            BadValueError: a number is not finite, or too large; nothing of this step is recorded.
            ReplayFullError, RedisUnavailableError, ContractError, StoppedError: as in `send_batch`.
        """
        if info and info.get("phantom"):
            return -1
        if amend_within_s is not None and len(obs) < 2 and not done:
            raise ValueError("a step whose reward is to be amended needs its new_obs: send([obs, new_obs], ...)")
        log = self._log or self._open_single(obs[0], action, extras, info)
        if self._singles.add(log, obs, action, reward, done, info, truncated, extras, version):
            self._oldest_s = time.monotonic()
        step_id = log.offset + log.length - 1
        if amend_within_s is not None:
            self._amendments.expect(step_id, amend_within_s)
        free = log.length - self._count_held(log)
        if free >= self._flush_length or (free and time.monotonic() - self._oldest_s >= self._max_delay_s):
            self._leave()
        elif self.outbox.has_answer:
            self._push(waits_for_last=False)
        return step_id

    def amend(self, step_id: int, *, reward: float) -> bool:
        """Replace the reward of a step that is held back, which may leave then; on the thread that calls `send`.

        Args:
            step_id: what `send(..., amend_within_s=...)` returned.
            reward: the reward that counts.

        Returns:
            Whether it was in time. Otherwise, it is refused and counted: the step was amended before, has left, or was
            not held back.

        Raises:
            BadValueError: the reward is not finite, or too large; the step is still held back.
        """
        return self._amendments.amend(self._log, step_id, reward)

    def _open_single(self, obs: Obs, action: Any, extras: Mapping[str, Any], info: Mapping[str, Any] | None) -> RowLog:
        frames = info.get("frames") if info else None
        if self._frame_stack == 1 and isinstance(frames, tuple) and 1 < len(frames) <= MAX_STACK:
            self._frame_stack = len(frames)
        array = np.asarray(action)
        spec = ArraySpec("action", array.shape, np.dtype(np.float32) if array.dtype == np.float64 else array.dtype)
        columns = {name: np.asarray(value)[None] for name, value in extras.items()}
        return self._make_log(obs, spec, extra_specs(columns, interventions=self._has_interventions))
