"""Rewards: numbers, finite, of a size to learn from, and there at all."""

from __future__ import annotations

import math
from collections.abc import Iterator

from surreal.base.values import LARGEST
from surreal.plugins.doctor.environment.faults import LARGE_REWARD, NO_REWARD, REWARD_UNSOUND
from surreal.plugins.doctor.environment.play import Shown
from surreal.plugins.doctor.frame.finding import Finding, ok

_LARGE = 1e3
#: Steps after which it is worth a word that there was no reward.
_MANY_STEPS = 200


class RewardWatcher:
    """Looks at the rewards."""

    def __init__(self) -> None:
        self._steps = 0
        self._low, self._high = math.inf, -math.inf
        self._bad = 0
        self._bad_text = ""

    def see(self, shown: Shown) -> None:
        if shown.is_reset:
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

    def findings(self) -> Iterator[Finding]:
        if self._bad:
            yield REWARD_UNSOUND.found(f"the reward is {self._bad_text} in {self._bad:,} of {self._steps:,} steps")
        if self._steps == self._bad:
            return
        size = max(abs(self._low), abs(self._high))
        if size > _LARGE:
            yield LARGE_REWARD.found(f"rewards are {self._low:,.0f} to {self._high:,.0f}")
        elif not size and self._steps >= _MANY_STEPS:
            yield NO_REWARD.found(f"no reward other than 0 in {self._steps:,} steps of random actions")
        elif not self._bad:
            yield ok(f"rewards are {self._low:.3g} to {self._high:.3g}")

    def _note_bad(self, text: str) -> None:
        self._bad += 1
        self._bad_text = self._bad_text or text
