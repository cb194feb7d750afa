"""SingleSteps: steps that come one at a time, put into a `RowLog` as a pool's rows are. Used by `ExpSender.send`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.experience.format.data_contract import PRIORITY_COLUMN
from surreal.distributed.experience.sending.row_log import TERMINATED, TRUNCATED, RowLog
from surreal.errors import BadValueError
from surreal.tree import leaves, with_paths
from surreal.types import Obs, StepKind
from surreal.values import LARGEST, describe_unsound, is_sound

_FIRST, _MID, _LAST = int(StepKind.FIRST), int(StepKind.MID), int(StepKind.LAST)


class SingleSteps:
    """Remembers where the episode stands. Used by one thread."""

    def __init__(self) -> None:
        self._previous: Obs = None
        self._unfinished_reward: float | None = None

    def forget(self) -> None:
        """The episode was ended where it stood."""
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
        """Add a step, see `ExpSender.send`; returns whether it is the oldest one in the log.

        Raises:
            ValueError: shapes or columns changed, or a truncated step has no new_obs to bootstrap from.
            BadValueError: a number is not finite, or too large; the step is not recorded, and its segment ends before.
        """
        self._check(obs, reward, extras)
        position, is_oldest = log.length, False
        if position + 2 > log.capacity:
            log.reserve(2)
        if self._previous is None or obs[0] is not self._previous:
            is_oldest = position == log.carried
            position = self._start_row(log, position, obs[0])
        log.action[position - 1] = action
        log.version[position - 1] = version
        if extras or log.extras:
            if extras.keys() != log.extras.keys():
                raise ValueError(f"extras have columns {sorted(extras)} where {sorted(log.extras)} are agreed on")
            for name, value in extras.items():
                log.extras[name][position - 1] = value
        if done:
            if truncated is None:
                truncated = bool(info.get("truncated", False)) if info else False
            if len(obs) < 2 and truncated:
                raise ValueError("a truncated step needs its new_obs to bootstrap from: send([obs, new_obs], ...)")
            terminated = not truncated or bool(info and info.get("terminated", False))
            code = _LAST | (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
        else:
            code = _MID
        if done or len(obs) > 1:
            new_obs = obs[-1]
            _put_obs(log, position, new_obs)
            log.reward[position] = reward
            log.code[position] = code
            log.length = position + 1
            self._previous = None if done else new_obs
        else:
            # The next step's obs completes this one; until then its reward waits beside the log.
            self._previous, self._unfinished_reward = None, reward
        return is_oldest

    def _check(self, obs: Sequence[Obs], reward: float, extras: Mapping[str, Any]) -> None:
        is_good = abs(reward) <= LARGEST
        for shown in obs:
            if type(shown) is np.ndarray:
                # The step before has shown the same array already.
                is_good = is_good and (shown is self._previous or is_sound(shown))
            else:
                is_good = is_good and all(is_sound(np.asarray(leaf)) for leaf in leaves(shown))
        if is_good and not extras:
            return
        arrays = {"reward": np.asarray(reward)}
        judged = {name: value for name, value in extras.items() if name != PRIORITY_COLUMN}
        arrays |= {f"extra.{name}": np.asarray(value) for name, value in judged.items()}
        arrays |= {
            f"{name} {path}".rstrip(): np.asarray(leaf)
            for name, shown in zip(("obs", "new_obs"), obs, strict=False)
            for path, leaf in with_paths(shown)
        }
        if problem := describe_unsound(arrays):
            self.forget()
            raise BadValueError(f"a step that cannot be learned from is not recorded: {problem}")

    def _start_row(self, log: RowLog, position: int, obs: Obs) -> int:
        """Put obs where it belongs: behind a waiting step, in the row that has it already, or in a new FIRST row."""
        if self._unfinished_reward is not None:
            log.reward[position], log.code[position] = self._unfinished_reward, _MID
            self._unfinished_reward = None
        elif self._previous is not None and position and _is_last_row(log, position, obs):
            return position
        else:
            log.code[position] = _FIRST
        _put_obs(log, position, obs)
        log.length = position + 1
        return position + 1


def _is_last_row(log: RowLog, position: int, obs: Obs) -> bool:
    # Comparing bytes is several times faster than `array_equal`.
    leaves = _flatten(log, obs)
    return all(
        column[position - 1].tobytes() == leaf.tobytes() for column, leaf in zip(log.leaves, leaves, strict=True)
    )


def _flatten(log: RowLog, obs: Obs) -> list[NDArray[Any]]:
    leaves = log.contract.obs.flatten(obs)
    return leaves if log.contract.stack == 1 else [leaf[-1] for leaf in leaves]


def _put_obs(log: RowLog, position: int, obs: Obs) -> None:
    column = log.leaves[0]
    if type(obs) is np.ndarray and len(log.leaves) == 1 and obs.shape == column.shape[1:]:
        column[position] = obs
        return
    for column, leaf in zip(log.leaves, _flatten(log, obs), strict=True):
        if leaf.shape != column.shape[1:]:
            raise ValueError(f"an observation of shape {leaf.shape} where {column.shape[1:]} was agreed on")
        column[position] = leaf
