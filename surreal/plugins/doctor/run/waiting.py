"""Waits of the learner for experience, and of the agents for the learner."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.plugins.doctor.frame.finding import Finding, listed, ok
from surreal.plugins.doctor.run import faults
from surreal.plugins.doctor.run.look import Look, Record

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
            yield faults.SERVERS_WAITED_FOR.found(f"agents wait {share:.0%} of the time")
        yield from _named_waits(look)
        return
    if look.learner is None:  # the agents wait for it with any settings
        yield from _named_waits(look)
        return
    agents_wait = _mean_rate(look, "sender/wait_s_total")
    busy = busy_share(look.learner)
    idle = _IDLE if look.config.agent.round_steps is None else _IDLE_IN_TURNS
    said = _describe(agents_wait, busy)
    texts = [text for beat in look.view.alive for text in beat.waits_for]
    ratio = look.config.replay.samples_per_insert
    if agents_wait is not None and agents_wait > _WAITING:
        if ratio is not None and not any("the replay is full" in text for text in texts):
            yield faults.AGENTS_WAIT.found(
                f"{said}; replay.samples_per_insert is {ratio:g}", _fewer_agents(look, agents_wait)
            )
        else:
            yield faults.AGENTS_BLOCKED.found(said)
    elif busy is not None and busy < idle and look.view.updates:
        yield faults.STARVED.found(said, _more_experience(look))
    elif said:
        yield ok(said)
    yield from _named_waits(look)


def _mean_rate(look: Look, metric: str) -> float | None:
    """Return the mean growth in a second over the processes that have a metric; None if no process has it."""
    rates = [rate for record in look.living(metric) if (rate := record.rate(metric)) is not None]
    return sum(rates) / len(rates) if rates else None


def busy_share(learner: Record | None) -> float | None:
    """Return the share of the time in which a learner computes updates; None if it is not known yet."""
    if learner is None:
        return None
    rate, duration_ms = learner.rate("learner/updates_total"), learner.mean("learner/optimize_ms")
    return None if rate is None or duration_ms is None else min(1.0, rate * duration_ms / 1000)


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
    return faults.STALLED.found(
        f"nothing moved for {max(spans):.0f} s" + (f"; {'; '.join(waits[:4])}" if waits else "")
    )


def _describe(agents_wait: float | None, busy: float | None) -> str:
    parts = [] if agents_wait is None else [f"agents wait {agents_wait:.0%} of the time for the replay to take steps"]
    parts += [] if busy is None else [f"the learner computes {busy:.0%} of the time"]
    return ", ".join(parts)


def _fewer_agents(look: Look, share: float) -> str:
    """Estimate how many agents would send as much."""
    count = len(look.living("sender/"))
    enough = max(1, round(count * (1 - share) + 0.5))
    fewer = f"{enough} of {count} agents would send as much (agent.count); " if enough < count else ""
    return f"{fewer}for more env steps: a lower replay.samples_per_insert, or a quicker learner (device: cuda)"


def _more_experience(look: Look) -> str:
    ratio = look.config.replay.samples_per_insert
    raised = f", or a higher replay.samples_per_insert than {ratio:g}, to learn more from each" if ratio else ""
    return f"{faults.STARVED.remedy}{raised}"


def _named_waits(look: Look) -> Iterator[Finding]:
    """Report waits that have a name, except those for the limiter, which are its purpose."""
    said: dict[str, list[str]] = {}
    for beat in look.view.alive:
        for text in beat.waits_for:
            said.setdefault(text, []).append(beat.name)
    for text, names in said.items():
        who = listed(names, 3)
        if text.startswith("waiting for Redis"):
            yield faults.WAITS_FOR_REDIS.found(f"{who}: {text}")
        elif "limiter" not in text and "more experience" not in text:
            yield faults.WAITS_LONG.found(f"{who}: {text}")
