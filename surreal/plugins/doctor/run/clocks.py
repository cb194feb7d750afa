"""Clocks of the machines that a run is on: each process says how far its own is from the server's."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.run.faults import CLOCK_JUMPS, PROCESS_CLOCK
from surreal.plugins.doctor.run.look import Look

_SKEW_S, _JUMP_S, _FUTURE_S = 5.0, 2.0, 2.0
#: Clocks that differ by less say that they do not.
_TOLERANCE_S = 0.1


def clocks(look: Look) -> Iterator[Finding]:
    """Compare them, and see whether one was set meanwhile."""
    offsets = {record.name: record.offsets_s[-1] for record in look.records if record.offsets_s}
    is_even = True
    for record in look.records:
        # The first entry of a process is written before it has heard of the server's clock.
        known = record.offsets_s[1:]
        if known and max(known) - min(known) > _JUMP_S:
            is_even = False
            yield CLOCK_JUMPS.found(f"the clock of {record.name} jumped by {max(known) - min(known):.1f} s")
        elif known and abs(known[-1]) > _SKEW_S:
            is_even = False
            where = "behind" if known[-1] > 0 else "ahead of"
            yield PROCESS_CLOCK.found(f"{record.name} is {abs(known[-1]):.1f} s {where} Redis")
    for beat in look.view.beats:
        if beat.age_s < -_FUTURE_S:
            is_even = False
            yield CLOCK_JUMPS.found(f"{beat.name} gave a sign of life {-beat.age_s:.0f} s from now")
    if is_even and offsets:
        furthest_s = max(_TOLERANCE_S, *map(abs, offsets.values()))
        yield ok(f"the clocks of {len(offsets)} processes are within {furthest_s:.2g} s of Redis'")
