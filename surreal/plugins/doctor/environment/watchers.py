"""Watchers of a random play: episode ends, masks, rewards and speed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.base.values import LARGEST
from surreal.envs.actions import ActionAdapter, flat_mask
from surreal.plugins.doctor.environment import faults
from surreal.plugins.doctor.environment.play import Shown
from surreal.plugins.doctor.frame.finding import Finding, milliseconds, ok

#: Number of episodes with the same length that indicate a time limit, and its least length: short ones may be the task.
_SAME_EPISODES, _LEAST_LENGTH = 3, 30
#: Steps after which an episode without an end is reported.
_MANY_STEPS = 1000


class EndWatcher:
    """Counts the lengths of episodes, and the flags that end them."""

    def __init__(self) -> None:
        self._length = self._steps = 0
        self._terminated: Counter[int] = Counter()  # by length
        self._truncated: Counter[int] = Counter()
        self._both = 0

    def see(self, shown: Shown) -> None:
        if shown.is_reset:
            self._length = 0
            return
        self._length += 1
        self._steps += 1
        if shown.terminated:
            self._terminated[self._length] += 1
            self._both += shown.truncated
        elif shown.truncated:
            self._truncated[self._length] += 1

    def findings(self) -> Iterator[Finding]:
        terminated, truncated = self._terminated.total(), self._truncated.total()
        if not terminated + truncated:
            if self._steps >= _MANY_STEPS:
                yield faults.NO_END.found(f"no episode ended in {self._steps:,} steps")
            return
        if self._both:
            yield faults.BOTH_ENDS.found(f"{self._both:,} of {terminated + truncated:,} episodes end with both flags")
        length, count = self._terminated.most_common(1)[0] if terminated else (0, 0)
        if count == terminated >= _SAME_EPISODES and length >= _LEAST_LENGTH and not truncated:
            yield faults.TIME_LIMIT.found(f"all of {count:,} episodes are terminated at step {length:,}")
        else:
            yield ok(f"{terminated:,} episodes ended by a terminal state, {truncated:,} by a time limit")


class MaskWatcher:
    """Checks `info["action_mask"]` against the space of actions."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        flat = ActionAdapter(space).space
        self._parts: list[int] = []  # choices of each discrete action
        if isinstance(flat, spaces.Discrete):
            self._parts = [int(flat.n)]
        elif isinstance(flat, spaces.MultiDiscrete):
            self._parts = [int(n) for n in flat.nvec.ravel()]
        self._with = self._without = self._empty = 0
        self._problem = ""

    def see(self, shown: Shown) -> None:
        mask = shown.info.get("action_mask") if isinstance(shown.info, dict) else None
        if mask is None or not self._parts:
            self._without += not shown.is_end
            return
        self._with += 1
        try:
            row = flat_mask(mask, sum(self._parts))
        except (EnvError, ValueError, TypeError) as error:
            self._problem = self._problem or str(error)
            return
        if not shown.is_end and not all(part.any() for part in np.split(row, np.cumsum(self._parts)[:-1])):
            self._empty += 1

    def findings(self) -> Iterator[Finding]:
        if not self._with:
            return
        seen = self._with + self._without
        if self._problem:
            yield faults.MASK_SHAPE.found(self._problem)
        if self._empty:
            yield faults.MASK_EMPTY.found(f"the action mask is all false in {self._empty:,} of {seen:,} steps")
        if self._without:
            yield faults.MASK_MISSING.found(f"the action mask is missing in {self._without:,} of {seen:,} steps")
        if not (self._problem or self._empty or self._without):
            yield ok(f"action masks of {sum(self._parts)} choices in all of {seen:,} steps")


_LARGE_REWARD = 1e3
#: Steps after which missing rewards are reported.
_MANY_REWARDED_STEPS = 200
#: Episodes after which returns that do not differ are reported.
_MANY_EPISODES = 10


class RewardWatcher:
    """Checks the rewards."""

    def __init__(self) -> None:
        self._steps = 0
        self._low, self._high = math.inf, -math.inf
        self._return, self._returns = 0.0, Counter[float]()  # of episodes
        self._bad = 0
        self._bad_text = ""

    def see(self, shown: Shown) -> None:
        if shown.is_reset:
            self._return = 0.0
            return
        self._steps += 1
        try:
            reward = float(shown.reward)
        except (TypeError, ValueError, OverflowError):
            self._note_bad(f"{shown.reward!r:.60}, of type {type(shown.reward).__name__}")
            return
        if not abs(reward) <= LARGEST:
            self._note_bad(f"{reward:g}")
            return
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        self._return += reward
        if shown.is_end:
            self._returns[self._return] += 1

    def findings(self) -> Iterator[Finding]:
        if self._bad:
            yield faults.REWARD_UNSOUND.found(
                f"the reward is {self._bad_text} in {self._bad:,} of {self._steps:,} steps"
            )
        if self._steps == self._bad:
            return
        size = max(abs(self._low), abs(self._high))
        if size > _LARGE_REWARD:
            yield faults.LARGE_REWARD.found(f"rewards are {self._low:,.0f} to {self._high:,.0f}")
        elif not size and self._steps >= _MANY_REWARDED_STEPS:
            yield faults.NO_REWARD.found(f"no reward other than 0 in {self._steps:,} steps of random actions")
        elif len(self._returns) == 1 and self._returns.total() >= _MANY_EPISODES:
            (value,) = self._returns
            yield faults.SAME_RETURN.found(f"all {self._returns.total():,} episodes returned {value:.4g}")
        elif not self._bad:
            yield ok(f"rewards are {self._low:.3g} to {self._high:.3g}")

    def _note_bad(self, text: str) -> None:
        self._bad += 1
        self._bad_text = self._bad_text or text


_SLOW_PER_S = 50.0
#: A reset is slow if it takes this share of the time and this long, s.
_SLOW_SHARE, _SLOW_RESET_S = 0.5, 0.05


class SpeedWatcher:
    """Adds up the time of steps and of resets; the first reset may build what later ones use."""

    def __init__(self) -> None:
        self._steps = self._resets = 0
        self._steps_s = self._resets_s = self._first_reset_s = 0.0

    def see(self, shown: Shown) -> None:
        if not shown.is_reset:
            self._steps += 1
            self._steps_s += shown.took_s
        elif self._steps:
            self._resets += 1
            self._resets_s += shown.took_s
        else:
            self._first_reset_s = shown.took_s

    def findings(self) -> Iterator[Finding]:
        if not self._steps:
            return
        resets_s = self._resets_s if self._resets else self._first_reset_s
        reset_s, share = resets_s / max(self._resets, 1), resets_s / max(resets_s + self._steps_s, 1e-9)
        rate = self._steps / max(self._steps_s, 1e-9)
        said = f"{rate:,.0f} steps/s, a reset takes {milliseconds(reset_s)}, {share:.0%} of the time"
        is_slow_reset = self._resets > 0 and share > _SLOW_SHARE and reset_s > _SLOW_RESET_S
        found = [faults.SLOW_RESET.found(said)] if is_slow_reset else []
        found += [faults.SLOW_STEP.found(said)] if rate < _SLOW_PER_S else []
        yield from found or [ok(said)]
