"""How quick an environment is, and what its resets cost."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.plugins.doctor.environment.faults import SLOW_RESET, SLOW_STEP
from surreal.plugins.doctor.environment.play import Shown
from surreal.plugins.doctor.frame.finding import Finding, milliseconds, ok

_SLOW_PER_S = 50.0
#: A reset is slow if it takes as long as the rest of an episode, and a person would notice it, s.
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
        is_slow = False
        if self._resets and share > _SLOW_SHARE and reset_s > _SLOW_RESET_S:
            is_slow = True
            yield SLOW_RESET.found(said)
        if rate < _SLOW_PER_S:
            is_slow = True
            yield SLOW_STEP.found(said)
        if not is_slow:
            yield ok(said)
