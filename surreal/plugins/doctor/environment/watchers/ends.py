"""How episodes end: by a terminal state, by a time limit, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from surreal.plugins.doctor.environment.faults import BOTH_ENDS, NO_END, TIME_LIMIT
from surreal.plugins.doctor.environment.play import Shown
from surreal.plugins.doctor.frame.finding import Finding, ok

#: Episodes of one length that make a time limit, and the least of such a length: short ones may be the task.
_SAME_EPISODES, _LEAST_LENGTH = 3, 30
#: Steps after which an episode that goes on is worth a word.
_MANY_STEPS = 1000


class EndWatcher:
    """Counts how long episodes last, and which flag ends them."""

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
                yield NO_END.found(f"no episode ended in {self._steps:,} steps")
            return
        if self._both:
            yield BOTH_ENDS.found(f"{self._both:,} of {terminated + truncated:,} episodes end with both flags")
        length, count = self._terminated.most_common(1)[0] if terminated else (0, 0)
        if count == terminated >= _SAME_EPISODES and length >= _LEAST_LENGTH and not truncated:
            yield TIME_LIMIT.found(f"all of {count:,} episodes are terminated at step {length:,}")
        else:
            yield ok(f"{terminated:,} episodes ended by a terminal state, {truncated:,} by a time limit")
