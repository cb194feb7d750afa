"""Who of a run is alive, dead, restarted, hanging; and with which parameters they act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.run.faults import DEAD, HANGS, LAG, LOGGED, NO_LEARNER, OVER, RESTARTS, STALE
from surreal.plugins.doctor.run.look import Look
from surreal.run.process.roles import LEARNER

#: Lives of a name in the ten minutes that heartbeats are kept, from which on it is no accident.
_MANY_LIVES = 2
#: How long parameters may be on their way before they are stale, s; and how old those that act may be.
_STALE_S, _OLD_S = 30.0, 30.0


def alive(look: Look) -> Iterator[Finding]:
    """See who is there, and who should be."""
    beats = look.view.processes
    living = look.view.alive
    if look.view.stop_reason and not living:
        yield OVER.found(f"the run is over: {look.view.stop_reason}")
        return
    dead = [beat for beat in beats if not beat.is_alive()]
    for beat in dead if not look.view.stop_reason else ():
        said = f"{beat.name} on {beat.host}, pid {beat.pid}, gave its last sign of life {_ago(beat.age_s)}"
        is_learner = beat.role == LEARNER.counts_as
        yield NO_LEARNER.found(said, NO_LEARNER.remedy.replace("NAME", look.run)) if is_learner else DEAD.found(said)
    for beat in living:
        if beat.hangs_in:
            yield HANGS.found(f"{beat.name}: {beat.hangs_in}")
    lives = Counter(beat.name for beat in look.view.beats)
    for name, count in lives.items():
        if count > _MANY_LIVES:
            yield RESTARTS.found(f"{name} was started {count} times in ten minutes")
    if living:
        yield ok(f"{len(living)} processes are alive: {_names([beat.name for beat in living])}")


def logged(look: Look) -> Iterator[Finding]:
    """Pass on the newest error of each process."""
    for record in look.records:
        if record.errors:
            yield LOGGED.found(f"{record.name}: {' '.join(record.errors[-1].split())[:300]}")


def parameters(look: Look) -> Iterator[Finding]:
    """See how far behind the learner those are who act."""
    published = look.view.version
    if not look.is_going_on or not published or look.learner is None:
        return
    rate = look.learner.rate("broadcast/version") or look.learner.rate("broadcast/broadcasts_total")
    behind = False
    for record in look.living("listener/"):
        version, age_s = record.last("listener/version"), record.last("listener/age_s")
        # What it has not fetched was published since; where nothing is published, nothing is behind.
        if version is not None and age_s is not None and published > version and age_s > _STALE_S and rate:
            behind = True
            yield STALE.found(
                f"{record.name} has version {version:.0f}, loaded {_ago(age_s)}; {published} is published"
            )
    lag = look.learner.mean("learner/policy_lag_versions")
    if lag is not None and rate and lag / rate > _OLD_S:
        behind = True
        yield LAG.found(f"policy lag is {lag:.0f} versions, which took {lag / rate:.0f} s")
    if not behind and lag is not None:
        yield ok(f"policy lag is {lag:.3g} versions" + (f", {lag / rate:.2g} s" if rate else ""))


def _names(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _ago(age_s: float) -> str:
    return f"{age_s:.0f} s ago" if age_s < 120 else f"{age_s / 60:.0f} min ago"
