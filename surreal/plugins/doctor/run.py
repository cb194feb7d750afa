"""A run, in progress or ended: processes, waits for each other, and what it has learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from surreal.config import Config
from surreal.plugins.doctor.finding import FAULTS, Finding, fault, listed, ok
from surreal.plugins.doctor.look import Look, Record
from surreal.plugins.recorded.files import RunHistory
from surreal.run.build.checkpoints import is_finite, read_best, round_lines
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
        yield fault("run-over", f"the run is over: {look.view.stop_reason}")
        return
    dead = [beat for beat in beats if not beat.is_alive()]
    for beat in dead if not look.view.stop_reason else ():
        said = f"{beat.name} on {beat.host}, pid {beat.pid}, sent its last heartbeat {_ago(beat.age_s)}"
        name = "learner-dead" if beat.role == LEARNER.counts_as else "process-dead"
        yield fault(name, said, FAULTS[name].remedy.replace("NAME", look.run))
    for beat in living:
        if beat.hangs_in:
            yield fault("process-hangs", f"{beat.name}: {beat.hangs_in}")
    for name, count in Counter(beat.name for beat in look.view.beats).items():
        if count > _MANY_LIVES:
            yield fault("process-restarts", f"{name} was started {count} times in ten minutes")
    if living:
        yield ok(f"{len(living)} processes are alive: {listed([beat.name for beat in living], 6)}")


def logged(look: Look) -> Iterator[Finding]:
    """Report the newest error of each process."""
    for record in look.records:
        if record.errors:
            yield fault("errors-logged", f"{record.name}: {' '.join(record.errors[-1].split())[:300]}")


def parameters(look: Look) -> Iterator[Finding]:
    """Check how far the acting processes are behind the learner."""
    published = look.view.version
    if not look.is_going_on or not published or look.learner is None:
        return
    rate = look.learner.rate("broadcast/version") or look.learner.rate("broadcast/broadcasts_total")
    found: list[Finding] = []
    for record in look.living("listener/"):
        version, age_s = record.last("listener/version"), record.last("listener/age_s")
        # What it has not fetched was published since; where nothing is published, nothing is behind.
        if version is not None and age_s is not None and published > version and age_s > _STALE_S and rate:
            said = f"{record.name} has version {version:.0f}, loaded {_ago(age_s)}; {published} is published"
            found.append(fault("parameters-stale", said))
    lag = look.learner.mean("learner/policy_lag_versions")
    if lag is not None and rate and lag / rate > _OLD_S:
        found.append(fault("policy-lag", f"policy lag is {lag:.0f} versions, which took {lag / rate:.0f} s"))
    yield from found
    if not found and lag is not None:
        yield ok(f"policy lag is {lag:.3g} versions" + (f", {lag / rate:.2g} s" if rate else ""))


def _ago(age_s: float) -> str:
    return f"{age_s:.0f} s ago" if age_s < 120 else f"{age_s / 60:.0f} min ago"


def ending(folder: Path) -> Iterator[Finding]:
    """Report how the run ended, and whether it learned."""
    try:
        result = read_result(folder)
        status, reason, updates = result["status"], result["reason"], int(result["updates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield fault("run-killed", f"{folder / RESULT_NAME} cannot be read: {error}")
        return
    if status == "running":
        yield fault("run-killed", f"{folder} has no ending: the launcher was killed")
    elif status == "failed":
        yield fault("run-failed", f"the run failed: {reason}")
    else:
        yield ok(f"the run {'was interrupted' if status == 'interrupted' else 'has finished'}: {reason}")
        if not updates:
            yield fault(
                "run-untrained", f"the run ended before its first update, after {result.get('env_steps', 0)} env steps"
            )


def logs(folder: Path) -> Iterator[Finding]:
    """Report the newest error in each process's log, and skipped updates."""
    found: list[Finding] = []
    for path in sorted((folder / "logs").glob("*.log")):
        errors = [line for line in tail(path) if " ERROR " in line or " CRITICAL " in line]
        if errors:
            found.append(fault("errors-logged", f"{path.stem}: {' '.join(errors[-1].split())[:300]}"))
    if skipped := last_metric(folder, "learner/skipped_updates_total"):
        found.append(fault("updates-skipped", f"{skipped:,.0f} updates were skipped"))
    yield from found
    if not found:
        yield ok("no process logged an error, and no update was skipped")


#: Share of the time above which agents wait, and below which a learner idles; it computes less if both take turns.
_WAITING, _IDLE, _IDLE_IN_TURNS = 0.5, 0.5, 0.2
#: Time without progress after which a run has stalled, s.
_STALLED_S = 20.0


def waiting(look: Look) -> Iterator[Finding]:
    """Find the slower side, and the setting that helps it."""
    if not look.is_going_on or look.config.run.deterministic:
        return
    if (stall := _stall(look)) is not None:
        yield stall
        return
    if look.config.has_parameter_servers:
        share = _mean_rate(look, "gradients/wait_s_total")
        if share is not None and share > _WAITING:
            yield fault("agents-wait-for-servers", f"agents wait {share:.0%} of the time")
    elif look.learner is not None:  # without one, the agents wait for it with any settings
        yield from _slower_side(look, look.learner)
    yield from _named_waits(look)


def _slower_side(look: Look, learner: Record) -> Iterator[Finding]:
    agents_wait = _mean_rate(look, "sender/wait_s_total")
    rate, duration_ms = learner.rate("learner/updates_total"), learner.mean("learner/optimize_ms")
    busy = None if rate is None or duration_ms is None else min(1.0, rate * duration_ms / 1000)
    idle = _IDLE if look.config.agent.round_steps is None else _IDLE_IN_TURNS
    parts = [] if agents_wait is None else [f"agents wait {agents_wait:.0%} of the time for the replay to take steps"]
    parts += [] if busy is None else [f"the learner computes {busy:.0%} of the time"]
    said = ", ".join(parts)
    texts = [text for beat in look.view.alive for text in beat.waits_for]
    ratio = look.config.replay.samples_per_insert
    if agents_wait is not None and agents_wait > _WAITING:
        if ratio is not None and not any("the replay is full" in text for text in texts):
            yield fault(
                "agents-wait-for-credit",
                f"{said}; replay.samples_per_insert is {ratio:g}",
                _fewer_agents(look, agents_wait),
            )
        else:
            yield fault("agents-wait-for-room", said)
    elif busy is not None and busy < idle and look.view.updates:
        raised = f", or a higher replay.samples_per_insert than {ratio:g}, to learn more from each" if ratio else ""
        yield fault("learner-starved", said, f"{FAULTS['learner-starved'].remedy}{raised}")
    elif said:
        yield ok(said)


def _mean_rate(look: Look, metric: str) -> float | None:
    """Return the mean growth in a second over the processes that have a metric; None if no process has it."""
    rates = [rate for record in look.living(metric) if (rate := record.rate(metric)) is not None]
    return sum(rates) / len(rates) if rates else None


def _stall(look: Look) -> Finding | None:
    """Return a finding if there was neither an env step nor an update in the whole window."""
    spans, moved = [], 0.0
    for record in look.living(""):
        for metric in ("env/steps_total", "agent/env_steps_total", "learner/updates_total", "replay/env_steps_total"):
            points = record.series.get(metric, ())
            if points:
                spans.append(points[-1].time_s - points[0].time_s)
                moved += abs(record.growth(metric))
    if not spans or moved or max(spans) < _STALLED_S:
        return None
    waits = list(dict.fromkeys(f"{beat.name}: {text}" for beat in look.view.alive for text in beat.waits_for))
    return fault(
        "run-stalled", f"nothing moved for {max(spans):.0f} s" + (f"; {'; '.join(waits[:4])}" if waits else "")
    )


def _fewer_agents(look: Look, share: float) -> str:
    """Estimate how many agents would send as much."""
    count = len(look.living("sender/"))
    enough = max(1, round(count * (1 - share) + 0.5))
    fewer = f"{enough} of {count} agents would send as much (agent.count); " if enough < count else ""
    return f"{fewer}for more env steps: a lower replay.samples_per_insert, or a quicker learner (device: cuda)"


def _named_waits(look: Look) -> Iterator[Finding]:
    """Report waits that have a name, except those for the limiter, which are its purpose."""
    said: dict[str, list[str]] = {}
    for beat in look.view.alive:
        for text in beat.waits_for:
            said.setdefault(text, []).append(beat.name)
    for text, names in said.items():
        who = listed(names, 3)
        if text.startswith("waiting for Redis"):
            yield fault("waits-for-redis", f"{who}: {text}")
        elif "limiter" not in text and "more experience" not in text:
            yield fault("waits-for-others", f"{who}: {text}")


#: A policy has collapsed if it has lost more than this share of its gain over the first round.
_COLLAPSE = 0.5
#: Rounds before which returns may still be those of the first policies.
_LEAST_ROUNDS = 9
#: Change of the weights' length, as a share of it, below which they have hardly changed.
_UNMOVED = 1e-4


def scores(folder: Path, config: Config, *, is_over: bool = True) -> Iterator[Finding]:
    """Compare the rounds of the evaluation with each other and with the goal."""
    rounds = [line["mean_return"] for line in round_lines(folder / "eval" / "scores.jsonl", warns=False)
              if is_finite(line.get("mean_return"))]  # fmt: skip
    best = (read_best(folder / "eval") or {}).get("mean_return")
    if not rounds or best is None:
        yield ok("no round of evaluation was played")
        return
    goal, last = config.run.stop_at_return, rounds[-1]
    is_reached = goal is not None and best >= goal
    if goal is not None and not is_reached and is_over:
        yield fault("goal-missed", f"the best return is {best:.1f}; run.stop_at_return is {goal:g}")
    if len(rounds) >= _LEAST_ROUNDS and not is_reached and (still := _standstill(rounds)):
        yield fault("returns-constant" if min(rounds) == max(rounds) else "no-improvement", still)
        yield from _weights(folder)
    elif best > rounds[0] and best - last > _COLLAPSE * (best - rounds[0]):
        yield fault(
            "policy-collapsed", f"the last return is {last:.1f}, the best was {best:.1f}, the first {rounds[0]:.1f}"
        )
    else:
        yield ok(f"returns were {rounds[0]:.1f} first, {best:.1f} at best and {last:.1f} last")


def _standstill(rounds: Sequence[float]) -> str:
    """Describe rounds of which neither the second nor the last third is better than the first; "" if one is."""
    thirds = np.array_split(np.asarray(rounds), 3)
    first, second, last = (float(np.mean(third)) for third in thirds)
    if max(second, last) - first > float(np.median([np.std(third) for third in thirds])):
        return ""
    if min(rounds) == max(rounds):
        return f"all {len(rounds)} rounds of evaluation returned {last:.4g}"
    return f"the first third of {len(rounds)} rounds returned {first:.1f}, the last third {last:.1f}"


def _weights(folder: Path) -> Iterator[Finding]:
    history = RunHistory(folder)
    history.update()
    for process, rows in history.curves("learner/weight_norm").items():
        lengths = rows.value
        if len(lengths) > 1 and np.ptp(lengths) < _UNMOVED * np.mean(lengths):
            yield fault("weights-unchanged", f"learner/weight_norm of the {process} stayed at {lengths[-1]:.6g}")
