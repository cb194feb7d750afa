"""The pane of one run: its progress, processes and replay, and charts of its health."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from dash import html

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.dashboard.page.curves import Drawing, Stroke, chart, legend
from surreal.plugins.dashboard.page.parts import (
    NOTHING,
    Shown,
    badge,
    bar,
    duration,
    note,
    number,
    percent,
    size,
    table,
)
from surreal.plugins.dashboard.sources.live import Live
from surreal.plugins.recorded.curves import Axis, Band, line_of
from surreal.plugins.recorded.history import History
from surreal.plugins.recorded.listing import ListedRun
from surreal.replay.stream.info import ReplayInfo
from surreal.run.view.live.text import describe_balance, describe_troubles
from surreal.run.view.live.trend import Bound
from surreal.run.view.run_view import RunView

#: Metrics of the small charts, of runs that have them.
HEALTH_METRICS = (
    "learner/policy_lag_versions",
    "replay/fill_ratio",
    "replay/samples_per_insert",
    "agent/env_steps_per_s",
    "learner/updates_per_s",
    "sender/wait_s_total",
)
#: Names of more of them: how well the run keeps time, and how often a person intervenes.
_MORE_HEALTH = re.compile("intervention|latency|deadline")


def overview(listed: ListedRun, live: Live | str, history: History) -> Shown:
    """Show a run's state, progress and numbers."""
    state = live.view.state if isinstance(live, Live) and listed.is_alive else listed.status
    words = [badge(state), html.H2(listed.label, title=str(listed.folder or listed.run))]
    reason = live.view.stop_reason if isinstance(live, Live) and live.view.stop_reason else listed.reason
    parts: list[Shown] = [html.Div([*words, html.Span(reason, className="dim")], className="run-title")]
    if isinstance(live, str) and live:
        parts.append(html.P(f"Its Redis does not answer: {live}", className="note trouble"))
    if isinstance(live, Live) and listed.is_alive and live.bound is not None:
        parts.append(_progress(live.bound))
    parts.append(html.Div([_card(*card) for card in _numbers(listed, live, history)], className="numbers"))
    return html.Div(parts, className="card")


def processes(live: Live | str) -> Shown:
    """Show a run's processes, with the reason of each wait."""
    if not isinstance(live, Live):
        return _card_of("Processes", note("No process of this run can be seen: it is over, or elsewhere."))
    snapshot = live.view
    troubles = [
        html.P([html.B(f"{kind} "), text], className=f"trouble {kind}") for kind, text in describe_troubles(snapshot)
    ]
    rows = [
        (
            html.B(beat.name),
            beat.role,
            _health(beat),
            f"{beat.host}:{beat.pid}",
            duration(beat.time - beat.started),
            f"{max(0.0, beat.age_s):.0f} s ago",
            number(beat.version),
            number(beat.global_step),
            _rate(beat),
        )
        for beat in snapshot.processes
    ]
    heads = ("process", "role", "health", "host:pid", "up", "seen", "version", "env steps", "rate")
    shown = table(heads, rows, numeric=("up", "seen", "version", "env steps", "rate"))
    return _card_of("Processes", *troubles, shown if rows else note("No process has reported yet."))


def replay(live: Live | str) -> Shown:
    """Show the contents of each shard of a run's replay."""
    shards: Sequence[ReplayInfo] = live.shards if isinstance(live, Live) else ()
    if not shards:
        return _card_of("Replay", note("There is no replay in Redis now."))
    rows = [
        (
            str(shard.shard),
            shard.mode or NOTHING,
            number(shard.steps),
            number(shard.live_steps),
            number(shard.chunks),
            bar(None if not shard.max_bytes else shard.live_bytes / shard.max_bytes, size(shard.live_bytes)),
            size(shard.max_bytes),
            duration(shard.oldest_age_s),
            duration(shard.newest_age_s),
            number(shard.samples),
            badge("owned" if shard.owner else "unowned"),
        )
        for shard in shards
    ]
    heads = ("shard", "mode", "env steps", "there", "chunks", "bytes", "bound", "oldest", "newest", "samples", "owner")
    numeric = ("env steps", "there", "chunks", "bound", "oldest", "newest", "samples")
    return _card_of("Replay", table(heads, rows, numeric=numeric))


def health_charts(history: History, theme: str) -> list[Shown]:
    """Draw a chart for each metric of a run's health, with a curve for each process, below a legend."""
    more = [name for name in history.names() if _MORE_HEALTH.search(name) and name not in HEALTH_METRICS]
    curves = {name: history.curves(name) for name in (*HEALTH_METRICS, *more)}
    processes = list(dict.fromkeys(process for rows in curves.values() for process in rows))
    shown = []
    for name, of_processes in curves.items():
        drawings = []
        for process, rows in of_processes.items():
            x, y = line_of(rows, Axis.SECONDS, history.started)
            if np.isfinite(y).any():
                nothing = np.full(len(x), np.nan)
                band = Band(x, y, nothing, nothing, np.ones(len(x), np.int64))
                drawings.append(Drawing(process, Stroke.of(processes.index(process), theme), band))
        if drawings:
            shown.append(chart(name, drawings, Axis.SECONDS.words, theme))
    return [legend([(process, [process]) for process in processes], theme), *shown] if shown else []


def _card_of(title: str, *parts: Shown) -> Shown:
    return html.Section([html.H3(title), *parts], className="card")


def _card(name: str, value: str, more: str) -> Shown:
    return html.Div(
        [html.Div(name, className="dim"), html.Div(value, className="figure"), html.Div(more, className="dim")],
        className="number",
    )


def _numbers(listed: ListedRun, live: Live | str, history: History) -> list[tuple[str, str, str]]:
    """Return name, value and a note of each number."""
    if isinstance(live, Live):
        seen, age = live.view, live.age_s
        rates = f"{number(seen.steps_per_s, 3)}/s", f"{number(seen.updates_per_s, 3)}/s"
    else:
        seen, age, rates = _last_view(listed, history), listed.time_s, ("", "")
    fill = NOTHING if seen.replay_fill is None else f"{seen.replay_fill:.0%}"
    position = seen.limiter_position
    missed = f"{number(seen.missed_deadlines)} of {number(seen.deadlines)}"
    latency = f"latency p99 {number(seen.latency_p99_ms, 3)} ms"
    return [
        ("env steps", number(seen.env_steps), rates[0]),
        ("updates", number(seen.updates), rates[1]),
        ("time", duration(age), ""),
        ("return of agents", number(seen.episode_return), "exploring"),
        ("evaluation return", number(seen.eval_return), f"best {number(seen.best_return)}"),
        ("replay fill", fill, ""),
        (
            "samples per insert",
            number(seen.samples_per_insert, 3),
            "" if position is None else describe_balance(position),
        ),
        ("policy lag", number(seen.policy_lag, 3), f"version {number(seen.version)}"),
        *([("missed deadlines", missed, latency)] if seen.deadlines else []),
    ]


def _last_view(listed: ListedRun, history: History) -> RunView:
    """Build the view of a finished run from its last reports."""
    return RunView(
        processes=(),
        env_steps=listed.env_steps,
        updates=listed.updates,
        best_return=listed.best_return,
        episode_return=_last(history, "agent/episode_return_recent"),
        eval_return=_last(history, "eval/episode_return"),
        replay_fill=_last(history, "replay/fill_ratio"),
        samples_per_insert=_last(history, "replay/samples_per_insert"),
        policy_lag=_last(history, "learner/policy_lag_versions"),
        version=round(_last(history, "broadcast/version") or 0),
    )


def _last(history: History, name: str) -> float | None:
    values = [rows.value[-1] for rows in history.curves(name).values() if len(rows.value)]
    return float(np.mean(values)) if values else None


def _progress(bound: Bound) -> Shown:
    """Show a run's progress toward the nearest of its limits, with the time left, as the live view does."""
    show, unit = (duration, "") if bound.name == "time" else (number, f" {bound.name}")
    left = "" if not bound.left_s else f", {duration(bound.left_s)} left"
    return bar(bound.share, f"{show(bound.done)} of {show(bound.total)}{unit} ({percent(bound.share)}){left}")


def _health(beat: Heartbeat) -> Shown:
    if not beat.is_alive():
        return badge("dead")
    if beat.hangs_in:
        return html.Span([badge("hangs"), f" in {beat.hangs_in}"])
    if beat.waits_for:
        return html.Span([badge("waits"), f" {beat.waits_for[0]}"])
    return badge("alive")


def _rate(beat: Heartbeat) -> str:
    for name, unit in (("agent/env_steps_per_s", "steps/s"), ("learner/updates_per_s", "updates/s")):
        if name in beat.metrics:
            return f"{number(beat.metrics[name], 3)} {unit}"
    return NOTHING
