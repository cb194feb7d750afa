"""Whether the memory of the process grows with the episodes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import psutil

from surreal.plugins.doctor.environment.faults import LEAK
from surreal.plugins.doctor.environment.play import Budget, Env, Shown, play
from surreal.plugins.doctor.frame.finding import Finding, ok

#: Of the time, in so many parts; the first ones fill caches.
_PARTS, _WARM = 8, 3
#: Growth below this, in all parts that count, is no leak, bytes.
_LEAST_BYTES = 4 << 20
#: What a run of a million env steps may lose before it is worth a word, bytes.
_PER_MILLION_STEPS = 512 << 20


def process_bytes() -> int:
    """Memory of this process, resident, bytes."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def leaking(
    env: Env,
    time_s: float,
    *,
    measure: Callable[[], int] = process_bytes,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Finding]:
    """Play, and see whether memory grows in each part of the time.

    Args:
        env: the environment.
        time_s: for how long.
        measure: gives the bytes of this process.
        clock: seconds, monotonic.
    """
    steps, episodes, sizes = [0], [0], [measure()]
    for part in range(_PARTS):
        counter = _Counter()
        problems = list(play(env, [counter], Budget(time_s / _PARTS, 1 << 30), seed=part, clock=clock))
        if problems:  # said by the check before
            return
        steps.append(steps[-1] + counter.steps)
        episodes.append(episodes[-1] + counter.episodes)
        sizes.append(measure())
    growth = sizes[-1] - sizes[_WARM]
    played, ended = steps[-1] - steps[_WARM], episodes[-1] - episodes[_WARM]
    per_million = growth / max(played, 1) * 1e6
    is_steady = all(after > before for before, after in zip(sizes[_WARM:], sizes[_WARM + 1 :], strict=False))
    if is_steady and growth > _LEAST_BYTES and per_million > _PER_MILLION_STEPS:
        each = f", {growth / ended / 1024:,.0f} KiB with each episode" if ended else ""
        yield LEAK.found(
            f"memory grows by {growth / 2**20:.0f} MiB in {played:,} steps{each}, "
            f"{per_million / 2**30:.1f} GiB in a million"
        )
    else:
        yield ok(f"no leak in {steps[-1]:,} steps")


class _Counter:
    def __init__(self) -> None:
        self.steps = self.episodes = 0

    def see(self, shown: Shown) -> None:
        self.steps += not shown.is_reset
        self.episodes += shown.is_end

    def findings(self) -> Iterator[Finding]:
        return iter(())
