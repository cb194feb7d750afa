"""The replay of a run: its size, its use, and its memory in Redis."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.run import faults
from surreal.plugins.doctor.run.look import Look, Record

#: Samples of an env step that are too few or too many, if no ratio is set.
_FEW, _MANY = 0.5, 200.0
#: Env steps after which an average is meaningful.
_LEAST_STEPS = 5000
#: Share of maxmemory that counts as full.
_FULL = 0.95


def usage(look: Look) -> Iterator[Finding]:
    """Check how often experience is sampled, and whether the limiter holds its band."""
    learner = look.learner
    if learner is None or not look.is_going_on:
        return
    steps, used = learner.last("replay/env_steps_total"), learner.last("replay/samples_per_insert")
    ratio = look.config.replay.samples_per_insert
    if steps is None or used is None or not learner.last("replay/transitions_count"):
        return
    if ratio is not None:
        yield from _band(learner, ratio, look.config.replay.samples_per_insert_tolerance, used)
    elif steps < _LEAST_STEPS or look.config.agent.round_steps is not None:
        return
    elif used < _FEW and (learner.last("replay/evicted_chunks_total") or 0) > 0 and _is_sampled(learner):
        yield faults.UNUSED.found(f"an env step is sampled {used:.2g} times on average")
    elif used > _MANY:
        yield faults.OVERUSED.found(f"an env step is sampled {used:,.0f} times on average")
    else:
        yield ok(f"an env step is sampled {used:.3g} times on average")


def size(look: Look) -> Iterator[Finding]:
    """Check whether bytes, instead of the capacity, bound the replay."""
    learner = look.learner
    fill = learner.last("replay/fill_ratio") if learner is not None else None
    if learner is None or fill is None or not _is_sampled(learner):
        return
    there = learner.last("replay/transitions_count") or 0
    stored, bound = learner.last("replay/redis_bytes") or 0, look.config.replay.max_bytes
    if fill < 0.5 and learner.growth("replay/evicted_chunks_total") > 0 and stored > 0.8 * bound:
        per_step = learner.last("replay/bytes_per_transition") or 0
        yield faults.BOUND.found(
            f"{there:,.0f} transitions fill {stored / 2**20:,.0f} MiB, {fill:.0%} of the capacity; "
            f"each takes {per_step:,.0f} bytes"
        )
    else:
        yield ok(f"{there:,.0f} transitions, {fill:.0%} of the capacity, {stored / 2**20:,.3g} MiB in Redis")


def memory(look: Look, *, used_bytes: int, maxmemory_bytes: int) -> Iterator[Finding]:
    """Check whether the experience's Redis has room for the growing replay; `maxmemory_bytes` is 0 without a limit."""
    learner = look.learner
    if learner is None or not maxmemory_bytes or look.config.redis.replay_address is not None:
        return
    stored = learner.last("replay/redis_bytes") or 0.0
    wanted = used_bytes - stored + look.config.replay.max_bytes
    rate = learner.rate("replay/redis_bytes") or 0.0
    left = maxmemory_bytes - used_bytes
    if wanted > _FULL * maxmemory_bytes and rate > 0 and stored < 0.95 * look.config.replay.max_bytes:
        yield faults.FILLS_UP.found(
            f"the replay has {stored / 2**20:,.0f} MiB of {look.config.replay.max_bytes / 2**20:,.0f} and grows by "
            f"{rate / 2**20:.3g} MiB/s, but only {left / 2**20:,.0f} MiB are left: full in {_duration(left / rate)}"
        )
    elif rate > 0:
        yield ok(f"the replay grows by {rate / 2**20:.2g} MiB/s; {left / 2**20:,.0f} MiB of Redis are free")


def _band(learner: Record, ratio: float, tolerance: float | None, used: float) -> Iterator[Finding]:
    """Compare the samples and inserts in the window, whose difference the band bounds."""
    steps = learner.growth("replay/env_steps_total")
    sampled = learner.growth("replay/samples_total")
    if tolerance is None:  # the default is a few chunks and batches, less than a minute's
        tolerance = 0.25 * ratio * max(steps, 1.0) + 4096
    apart = sampled - ratio * steps
    if steps and abs(apart) > 2 * tolerance + 0.1 * ratio * steps:
        yield faults.SPI.found(f"samples per insert are {sampled / steps:.3g} in the last minute, set to {ratio:g}")
    else:
        yield ok(f"samples per insert are {used:.3g}, set to {ratio:g}")


def _is_sampled(learner: Record) -> bool:
    """Whether the replay samples transitions; one that is consumed keeps nothing."""
    return "replay/open_trajectories_count" not in learner.series


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
