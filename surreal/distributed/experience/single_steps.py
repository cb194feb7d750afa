"""SingleSteps: steps that come one at a time, put into a `RowLog` like a pool's rows. Used by `ExpSender.send`.

`Amendments` are steps that a sender holds back until their reward is known (`ExpSender.amend`). A step is held in this
process, with all rows that came after it, and never leaves with a reward that may still change. So what is acknowledged
is final, and a process that is killed loses only steps that were not acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import BadValueError
from surreal.base.types import EXECUTED_ACTION, Obs, StepKind
from surreal.base.values import LARGEST, describe_unsound, is_sound
from surreal.distributed.experience.data_contract import PRIORITY_COLUMN
from surreal.distributed.experience.open_rows import TERMINATED, TRUNCATED
from surreal.distributed.experience.row_log import RowLog

_FIRST, _MID, _LAST = int(StepKind.FIRST), int(StepKind.MID), int(StepKind.LAST)


class SingleSteps:
    """Remembers the last step of the episode. Used by one thread."""

    def __init__(self) -> None:
        self._previous: Obs = None
        self._unfinished_reward: float | None = None

    def forget(self) -> None:
        self._previous, self._unfinished_reward = None, None

    def add(
        self,
        log: RowLog,
        obs: Sequence[Obs],
        action: Any,
        reward: float,
        done: bool,
        info: Mapping[str, Any] | None,
        truncated: bool | None,
        extras: Mapping[str, Any],
        version: int,
    ) -> bool:
        """Add a step, see `ExpSender.send`; return whether it is the oldest one in the log.

        Raises:
            ValueError: shapes or columns changed, or a truncated step has no new_obs to bootstrap from.
            BadValueError: a number is not finite, or too large; the step is not recorded, and its segment ends before.
        """
        begin, is_oldest = log.length, False
        if begin + 2 > log.capacity:
            log.reserve(2)
        try:
            if not abs(reward) <= LARGEST:
                raise _refusal("reward", reward)
            if self._previous is None or obs[0] is not self._previous:
                is_oldest = begin == log.carried
                self._start_row(log, begin, obs[0])
            position = log.length
            acting = position - 1
            if log.has_interventions:
                executed = info.get(EXECUTED_ACTION) if info else None
                log.is_intervention[acting] = executed is not None
                action = action if executed is None else _executed(log, executed)
            log.action[acting] = action
            log.version[acting] = version
            if extras or log.extras:
                _put_extras(log, acting, extras)
            code = _end_code(obs, info, truncated) if done else _MID
            if done or len(obs) > 1:
                new_obs = obs[-1]
                _put_obs(log, position, new_obs, "new_obs")
                log.reward[position] = reward
                log.code[position] = code
                log.length = position + 1
                self._previous = None if done else new_obs
            else:
                # The next step's obs completes this one; until then its reward waits here.
                self._previous, self._unfinished_reward = None, reward
        except BadValueError:
            log.length = begin
            self.forget()
            raise
        return is_oldest

    def _start_row(self, log: RowLog, position: int, obs: Obs) -> None:
        """Put obs after a step that waits for it, into the row that already has it, or into a new FIRST row."""
        if self._unfinished_reward is not None:
            log.reward[position], log.code[position] = self._unfinished_reward, _MID
            self._unfinished_reward = None
        elif self._previous is not None and position and _is_last_row(log, position, obs):
            return
        else:
            log.code[position] = _FIRST
        _put_obs(log, position, obs, "obs")
        log.length = position + 1


def _end_code(obs: Sequence[Obs], info: Mapping[str, Any] | None, truncated: bool | None) -> int:
    """Return the `code` of a row that ends its episode."""
    if truncated is None:
        truncated = bool(info.get("truncated", False)) if info else False
    if len(obs) < 2 and truncated:
        raise ValueError("a truncated step needs its new_obs to bootstrap from: send([obs, new_obs], ...)")
    terminated = not truncated or bool(info and info.get("terminated", False))
    return _LAST | (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)


def _is_last_row(log: RowLog, position: int, obs: Obs) -> bool:
    # Comparing bytes is several times faster than `array_equal`.
    leaves = log.contract.obs.flatten(obs)
    if log.contract.stack > 1:
        leaves = [leaf[-1] for leaf in leaves]
    return all(kept[position - 1].tobytes() == leaf.tobytes() for kept, leaf in zip(log.leaves, leaves, strict=True))


def _put_obs(log: RowLog, position: int, obs: Obs, name: str) -> None:
    is_whole = type(obs) is np.ndarray and obs.shape == log.array_shape
    # The same check as `is_sound` makes for a short vector, without its calls.
    if is_whole and (hypot(*obs.tolist()) <= LARGEST if obs.dtype is log.vector_dtype else is_sound(obs)):
        log.leaves[0][position] = obs
        return
    spec = log.contract.obs
    for leaf, column, shown in zip(spec.leaves, log.leaves, spec.split(obs), strict=True):
        array = np.asarray(shown)
        if log.contract.stack > 1:
            array = array[-1]
        if array.shape != leaf.shape:
            raise ValueError(f"an observation of shape {array.shape} where {leaf.shape} was agreed on")
        if not is_sound(array):
            raise _refusal(f"{name} {leaf.name}".rstrip(), array)
        column[position] = array


def _executed(log: RowLog, action: Any) -> NDArray[Any]:
    array, shape = np.asarray(action), log.action.shape[1:]
    if array.shape != shape:
        raise ValueError(f'info["{EXECUTED_ACTION}"] has shape {array.shape} where {shape} was agreed on')
    if not is_sound(array):
        raise _refusal(EXECUTED_ACTION, array)
    return array


def _put_extras(log: RowLog, position: int, extras: Mapping[str, Any]) -> None:
    if extras.keys() != log.extras.keys():
        raise ValueError(f"extras have columns {sorted(extras)} where {sorted(log.extras)} are agreed on")
    for name, value in extras.items():
        if name != PRIORITY_COLUMN and not _is_sound(value):
            raise _refusal(f"extra.{name}", value)
        log.extras[name][position] = value


def _is_sound(value: Any) -> bool:
    return abs(value) <= LARGEST if type(value) is float else is_sound(np.asarray(value))


def _refusal(name: str, value: Any) -> BadValueError:
    problem = describe_unsound({name: np.asarray(value)})
    return BadValueError(f"a step that cannot be learned from is not recorded: {problem}")


class Amendments:
    """Numbers of steps whose reward may still change, each until its deadline, and counts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s: dict[int, float] = {}  # by step, the oldest first
        self._amended = self._expired = self._refused = 0
        self.is_used = False  #: whether a step was ever held back

    def expect(self, step_id: int, within_s: float) -> None:
        """Hold back a step, later than all others, for some s."""
        self._due_s[step_id] = self._clock() + within_s
        self.is_used = True

    def oldest(self) -> int | None:
        """Return the oldest step that is held back; None if there is none."""
        while self._due_s:
            step_id, due_s = next(iter(self._due_s.items()))
            if due_s > self._clock():
                return step_id
            del self._due_s[step_id]
            self._expired += 1
        return None

    def count_held(self, log: RowLog) -> int:
        """Count the rows from the outcome of the oldest step that is held back."""
        oldest = self.oldest()
        return 0 if oldest is None else log.offset + log.length - oldest

    def amend(self, log: RowLog | None, step_id: int, reward: float) -> bool:
        """Replace a reward and stop holding the step back; see `ExpSender.amend`."""
        if not abs(reward) <= LARGEST:
            raise BadValueError(f"an amended reward is {reward}; it must be finite, and no larger than {LARGEST:g}")
        if log is None or not self._due_s.get(step_id, float("-inf")) > self._clock():
            self._refused += 1
            return False
        del self._due_s[step_id]
        log.reward[step_id - log.offset] = reward
        self._amended += 1
        return True

    def forget(self) -> None:
        """Hold back no step any longer; those that were keep the reward that they have."""
        self._expired += len(self._due_s)
        self._due_s.clear()

    def metrics(self) -> dict[str, float]:
        return {
            "sender/amended_rewards_total": float(self._amended),
            "sender/expired_rewards_total": float(self._expired),
            "sender/refused_amendments_total": float(self._refused),
        }
