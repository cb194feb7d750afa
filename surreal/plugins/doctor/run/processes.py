"""Processes of a run, in progress or ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from surreal.plugins.doctor.frame.finding import Finding, listed, ok
from surreal.plugins.doctor.run import faults
from surreal.plugins.doctor.run.look import Look
from surreal.run.process.roles import LEARNER
from surreal.run.process.run_folder import RESULT_NAME, last_metric, read_result, tail

#: Lives of a name in ten minutes, for which heartbeats are kept, above which it is no longer an accident.
_MANY_LIVES = 2
#: Age of loaded parameters above which they are stale, s; and of the parameters that made the experience, s.
_STALE_S, _OLD_S = 30.0, 30.0


def alive(look: Look) -> Iterator[Finding]:
    """Find processes that are dead, hang, or were restarted often."""
    beats = look.view.processes
    living = look.view.alive
    if look.view.stop_reason and not living:
        yield faults.OVER.found(f"the run is over: {look.view.stop_reason}")
        return
    dead = [beat for beat in beats if not beat.is_alive()]
    for beat in dead if not look.view.stop_reason else ():
        said = f"{beat.name} on {beat.host}, pid {beat.pid}, sent its last heartbeat {_ago(beat.age_s)}"
        fault = faults.NO_LEARNER if beat.role == LEARNER.counts_as else faults.DEAD
        yield fault.found(said, fault.remedy.replace("NAME", look.run))
    for beat in living:
        if beat.hangs_in:
            yield faults.HANGS.found(f"{beat.name}: {beat.hangs_in}")
    lives = Counter(beat.name for beat in look.view.beats)
    for name, count in lives.items():
        if count > _MANY_LIVES:
            yield faults.RESTARTS.found(f"{name} was started {count} times in ten minutes")
    if living:
        yield ok(f"{len(living)} processes are alive: {listed([beat.name for beat in living], 6)}")


def logged(look: Look) -> Iterator[Finding]:
    """Report the newest error of each process."""
    for record in look.records:
        if record.errors:
            yield faults.LOGGED.found(f"{record.name}: {' '.join(record.errors[-1].split())[:300]}")


def parameters(look: Look) -> Iterator[Finding]:
    """Check how far the acting processes are behind the learner."""
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
            yield faults.STALE.found(
                f"{record.name} has version {version:.0f}, loaded {_ago(age_s)}; {published} is published"
            )
    lag = look.learner.mean("learner/policy_lag_versions")
    if lag is not None and rate and lag / rate > _OLD_S:
        behind = True
        yield faults.LAG.found(f"policy lag is {lag:.0f} versions, which took {lag / rate:.0f} s")
    if not behind and lag is not None:
        yield ok(f"policy lag is {lag:.3g} versions" + (f", {lag / rate:.2g} s" if rate else ""))


def _ago(age_s: float) -> str:
    return f"{age_s:.0f} s ago" if age_s < 120 else f"{age_s / 60:.0f} min ago"


def ending(folder: Path) -> Iterator[Finding]:
    """Report how the run ended, and whether it learned."""
    try:
        result = read_result(folder)
        status, reason, updates = result["status"], result["reason"], int(result["updates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield faults.KILLED.found(f"{folder / RESULT_NAME} cannot be read: {error}")
        return
    if status == "running":
        yield faults.KILLED.found(f"{folder} has no ending: the launcher was killed")
    elif status == "failed":
        yield faults.FAILED.found(f"the run failed: {reason}")
    else:
        yield ok(f"the run {'was interrupted' if status == 'interrupted' else 'has finished'}: {reason}")
        if not updates:
            yield faults.UNTRAINED.found(
                f"the run ended before its first update, after {result.get('env_steps', 0)} env steps"
            )


def logs(folder: Path) -> Iterator[Finding]:
    """Report the newest error in each process's log, and skipped updates."""
    is_clean = True
    for path in sorted((folder / "logs").glob("*.log")):
        errors = [line for line in tail(path) if " ERROR " in line or " CRITICAL " in line]
        if errors:
            is_clean = False
            yield faults.LOGGED.found(f"{path.stem}: {' '.join(errors[-1].split())[:300]}")
    if skipped := last_metric(folder, "learner/skipped_updates_total"):
        is_clean = False
        yield faults.SKIPPED.found(f"{skipped:,.0f} updates were skipped")
    if is_clean:
        yield ok("no process logged an error, and no update was skipped")
