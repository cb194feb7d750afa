"""Clocks and counts of a run in progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from surreal.plugins.doctor.frame.finding import Fault, Finding, ok
from surreal.plugins.doctor.run import faults
from surreal.plugins.doctor.run.look import Look
from surreal.run.process.roles import RLX_SERVER

_SKEW_S, _JUMP_S, _FUTURE_S = 5.0, 2.0, 2.0
#: Smallest difference of clocks that is shown.
_TOLERANCE_S = 0.1


def clocks(look: Look) -> Iterator[Finding]:
    """Compare the clocks of the processes, and check whether one was set meanwhile."""
    offsets = {record.name: record.offsets_s[-1] for record in look.records if record.offsets_s}
    is_even = True
    for record in look.records:
        # The first entry of a process is written before it knows the server's clock.
        known = record.offsets_s[1:]
        if known and max(known) - min(known) > _JUMP_S:
            is_even = False
            yield faults.CLOCK_JUMPS.found(f"the clock of {record.name} jumped by {max(known) - min(known):.1f} s")
        elif known and abs(known[-1]) > _SKEW_S:
            is_even = False
            where = "behind" if known[-1] > 0 else "ahead of"
            yield faults.PROCESS_CLOCK.found(f"{record.name} is {abs(known[-1]):.1f} s {where} Redis")
    for beat in look.view.beats:
        if beat.age_s < -_FUTURE_S:
            is_even = False
            yield faults.CLOCK_JUMPS.found(f"{beat.name} gave a heartbeat {-beat.age_s:.0f} s from now")
    if is_even and offsets:
        furthest_s = max(_TOLERANCE_S, *map(abs, offsets.values()))
        yield ok(f"the clocks of {len(offsets)} processes are within {furthest_s:.2g} s of Redis'")


class _Counter(NamedTuple):
    """A metric that counts something bad."""

    metric: str
    fault: Fault
    unit: str  #: its unit, as in "12 env steps dropped"
    #: whether it is a current amount; otherwise it only grows, and its growth in the last minute matters
    is_now: bool = False


_COUNTERS = (
    _Counter("sender/dropped_steps_total", faults.DROPPED, "env steps dropped"),
    _Counter("replay/refused_chunks_total", faults.REFUSED, "chunks refused"),
    _Counter("replay/stale_trajectories_total", faults.TOO_OLD, "trajectories dropped for their age"),
    _Counter("replay/shards_away_count", faults.SHARDS, "shards away", is_now=True),
    _Counter("env/lost_episodes_total", faults.LOST_EPISODES, "episodes lost"),
    _Counter("eval/void_episodes_total", faults.LOST_EPISODES, "episodes of evaluation lost"),
    _Counter("env/worker_restarts_total", faults.WORKERS, "workers restarted"),
    _Counter("learner/skipped_updates_total", faults.SKIPPED, "updates skipped"),
    _Counter("learner/rollbacks_total", faults.DIVERGED, "times gone back to a checkpoint"),
    _Counter("learner/checkpoint_upload_failures_total", faults.UPLOADS, "uploads failed"),
    _Counter("listener/refused_total", faults.NOT_LOADED, "versions of the parameters refused"),
    _Counter("telemetry/dropped_lines_total", faults.TELEMETRY, "lines of logs and metrics dropped"),
)


def counts(look: Look) -> Iterator[Finding]:
    """Check all of these counters of all living processes."""
    is_clean = True
    records = look.living("")
    for counter in _COUNTERS:
        now, recent, names = 0.0, 0.0, []
        for record in records:
            if value := record.last(counter.metric) or 0.0:
                now += value
                recent += value if counter.is_now else record.growth(counter.metric)
                names.append(record.name)
        # An old event is only reported if its effect lasts.
        if recent > 0 or (now and counter.fault in (faults.SKIPPED, faults.DIVERGED, faults.REFUSED)):
            is_clean = False
            lately = "" if counter.is_now else f", {recent:,.0f} of them in the last minute"
            is_wanted = counter.fault is faults.DROPPED and all(name.startswith(RLX_SERVER.name) for name in names)
            fault = faults.DROPPED_BY_RLX if is_wanted and look.config.rlx.on_full == "drop" else counter.fault
            yield fault.found(f"{now:,.0f} {counter.unit}{lately} ({', '.join(names[:3])})")
    if is_clean and records:
        yield ok("nothing was dropped, refused or skipped in the last minute")
