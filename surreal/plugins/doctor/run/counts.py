"""What is dropped, refused, skipped or lost in a run: counters that should stay at 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from surreal.plugins.doctor.frame.finding import Fault, Finding, ok
from surreal.plugins.doctor.run.faults import (
    DIVERGED,
    DROPPED,
    DROPPED_BY_RLX,
    LOST_EPISODES,
    NOT_LOADED,
    REFUSED,
    SHARDS,
    SKIPPED,
    TELEMETRY,
    TOO_OLD,
    UPLOADS,
    WORKERS,
)
from surreal.plugins.doctor.run.look import Look
from surreal.run.process.roles import RLX_SERVER


class _Counter(NamedTuple):
    """A metric that says that something goes wrong.

    Attributes:
        unit: of what it counts, as in "12 env steps dropped".
        is_now: whether it says what there is now; else it only grows, and what counts is the last minute.
    """

    metric: str
    fault: Fault
    unit: str
    is_now: bool = False


_COUNTERS = (
    _Counter("sender/dropped_steps_total", DROPPED, "env steps dropped"),
    _Counter("replay/refused_chunks_total", REFUSED, "chunks refused"),
    _Counter("replay/stale_trajectories_total", TOO_OLD, "trajectories dropped for their age"),
    _Counter("replay/shards_away_count", SHARDS, "shards away", is_now=True),
    _Counter("env/lost_episodes_total", LOST_EPISODES, "episodes lost"),
    _Counter("eval/void_episodes_total", LOST_EPISODES, "episodes of evaluation lost"),
    _Counter("env/worker_restarts_total", WORKERS, "workers restarted"),
    _Counter("learner/skipped_updates_total", SKIPPED, "updates skipped"),
    _Counter("learner/rollbacks_total", DIVERGED, "times gone back to a checkpoint"),
    _Counter("learner/checkpoint_upload_failures_total", UPLOADS, "uploads failed"),
    _Counter("listener/refused_total", NOT_LOADED, "versions of the parameters refused"),
    _Counter("telemetry/dropped_lines_total", TELEMETRY, "lines of logs and metrics dropped"),
)


def counts(look: Look) -> Iterator[Finding]:
    """Look at all of these counters, over all processes that are alive."""
    is_clean = True
    records = look.living("")
    for counter in _COUNTERS:
        now, recent, names = 0.0, 0.0, []
        for record in records:
            if value := record.last(counter.metric) or 0.0:
                now += value
                recent += value if counter.is_now else record.growth(counter.metric)
                names.append(record.name)
        # What happened once, long ago, is told with what it came to, and only where it cannot be undone.
        if recent > 0 or (now and counter.fault in (SKIPPED, DIVERGED, REFUSED)):
            is_clean = False
            lately = "" if counter.is_now else f", {recent:,.0f} of them in the last minute"
            is_wanted = counter.fault is DROPPED and all(name.startswith(RLX_SERVER.name) for name in names)
            fault = DROPPED_BY_RLX if is_wanted and look.config.rlx.on_full == "drop" else counter.fault
            yield fault.found(f"{now:,.0f} {counter.unit}{lately} ({', '.join(names[:3])})")
    if is_clean and records:
        yield ok("nothing was dropped, refused or skipped in the last minute")
