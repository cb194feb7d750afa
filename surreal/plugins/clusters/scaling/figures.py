"""The table of all metrics of a run for Prometheus; docs/autoscaling.md explains each.

Names and units follow Prometheus' conventions: seconds and bytes, `_ratio` for a share between 0 and 1, `_total` for a
counter. Each metric has the label `run`, but no label for the process, because a run may have a thousand agents that
come and go. So their reports are added up here, in a way that remains correct while their number changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.process.roles import LEARNER, RLX_SERVER
from surreal.run.view.run_view import RunView

#: Latency that is reported when sessions wait and none was answered, s.
_NO_ANSWER_S = 10.0


class Figure(NamedTuple):
    """A metric of each run.

    Attributes:
        read: returns its value; None if the run does not have it, or no process reports it now.
    """

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[RunView], float | None]


def processes_by_role(now: RunView) -> dict[str, int]:
    """Count the living processes of each role; an RLX server is `rlx-server`, although its role is agent."""
    return dict(Counter(RLX_SERVER.name if _is_server(beat) else beat.role for beat in now.alive))


def _is_server(beat: Heartbeat) -> bool:
    return "rlx/active_sessions_count" in beat.metrics


def _servers(now: RunView) -> list[Heartbeat]:
    return [beat for beat in now.alive if _is_server(beat)]


def _values(now: RunView, metric: str) -> list[float]:
    """Return a metric of all living processes that have it."""
    found = (beat.metrics.get(metric) for beat in now.alive)
    return [value for value in found if value is not None and math.isfinite(value)]


def _learners(metric: str) -> Callable[[RunView], float | None]:
    """Read a metric of the learner or of a parameter server, not of the learners in agents that compute gradients."""

    def read(now: RunView) -> float | None:
        found = (beat.metrics.get(metric) for beat in now.alive if beat.role == LEARNER.counts_as)
        return next((value for value in found if value is not None), None)

    return read


def _sum(metric: str) -> Callable[[RunView], float | None]:
    return lambda now: sum(values) if (values := _values(now, metric)) else None


def _mean(metric: str) -> Callable[[RunView], float | None]:
    return lambda now: sum(values) / len(values) if (values := _values(now, metric)) else None


def _answer_s(now: RunView) -> float | None:
    return _each_waits_s(now, [beat.metrics.get("rlx/waiting_sessions_count", 0.0) for beat in _servers(now)])


def _queue_s(now: RunView) -> float | None:
    """Compute the waiting time without the time in which the whole server waited for the learner."""
    waiting = []
    for beat in _servers(now):
        names = ("rlx/waiting_sessions_count", "rlx/active_sessions_count", "agent/waiting_ratio")
        waits, sessions, share = (beat.metrics.get(name, 0.0) for name in names)
        waiting.append(max(waits - share * sessions, 0.0))
    return _each_waits_s(now, waiting)


def _each_waits_s(now: RunView, waiting: Iterable[float]) -> float | None:
    """Apply Little's law: the mean waiting time is the number that wait, divided by the answers per second."""
    wait, answers = sum(waiting), sum(_values(now, "rlx/answers_per_s"))
    return min(wait / answers, _NO_ANSWER_S) if answers > 0 else _NO_ANSWER_S if wait > 0 else None


FIGURES: tuple[Figure, ...] = (
    Figure(
        "surreal_learner_waiting_ratio", "gauge",
        "Share of the last 10 s in which the learner waited for experience.",
        _mean("learner/waiting_ratio"),
    ),
    Figure(
        "surreal_learner_waiting_seconds_total", "counter",
        "Time that the learner has waited for experience, since its first update.",
        _learners("learner/wait_s_total"),
    ),
    Figure(
        "surreal_agents_waiting_ratio", "gauge",
        "Share of the last 10 s in which agents waited for credit, room or parameters; mean over the agents.",
        _mean("agent/waiting_ratio"),
    ),
    Figure(
        "surreal_agents_busy", "gauge",
        "Agents that were busy, on average over the last 10 s; one that waits half of the time counts as half.",
        _sum("agent/busy_ratio"),
    ),
    Figure(
        "surreal_samples_per_insert", "gauge", "Times that an env step was sampled, on average over the run.",
        _learners("replay/samples_per_insert"),
    ),
    Figure(
        "surreal_samples_per_insert_lower", "gauge", "Samples per insert at which agents wait for credit.",
        _learners("replay/samples_per_insert_low"),
    ),
    Figure(
        "surreal_samples_per_insert_upper", "gauge", "Samples per insert at which the learner waits for experience.",
        _learners("replay/samples_per_insert_high"),
    ),
    Figure(
        "surreal_policy_lag_versions", "gauge", "Versions between the learner's and the newest experience's.",
        lambda now: now.policy_lag,
    ),
    Figure(
        "surreal_replay_fill_ratio", "gauge", "Transitions in the replay, of its capacity.",
        lambda now: now.replay_fill,
    ),
    Figure(
        "surreal_replay_transitions", "gauge", "Transitions that can be sampled.",
        _learners("replay/transitions_count"),
    ),
    Figure(
        "surreal_replay_bytes", "gauge", "Memory of Redis that the experience uses.",
        _learners("replay/redis_bytes"),
    ),
    Figure("surreal_env_steps_total", "counter", "Env steps of the run.", lambda now: now.env_steps),
    Figure("surreal_updates_total", "counter", "Updates of the run.", _learners("learner/updates_total")),
    Figure("surreal_samples_total", "counter", "Transitions sampled in the run.", _learners("replay/samples_total")),
    Figure(
        "surreal_parameter_version", "gauge", "Newest version of the parameters.", lambda now: now.version
    ),
    Figure(
        "surreal_rlx_sessions", "gauge", "RLX sessions that ask for actions.", _sum("rlx/active_sessions_count")
    ),
    Figure("surreal_rlx_connections", "gauge", "Connections to RLX servers.", _sum("rlx/connections_count")),
    Figure(
        "surreal_rlx_waiting_sessions", "gauge", "RLX sessions that waited for an action, mean over the last 10 s.",
        _sum("rlx/waiting_sessions_count"),
    ),
    Figure(
        "surreal_rlx_answer_seconds", "gauge",
        "Time that an RLX session waits for an action in its server, mean over the last 10 s.",
        _answer_s,
    ),
    Figure(
        "surreal_rlx_queue_seconds", "gauge",
        "Time that an RLX session waits for its turn, without the time in which its server waited for the learner.",
        _queue_s,
    ),
    Figure(
        "surreal_episode_return", "gauge", "Mean return of the agents' recent episodes, exploration included.",
        lambda now: now.episode_return,
    ),
    Figure("surreal_eval_return", "gauge", "Mean return of the last evaluation.", lambda now: now.eval_return),
    Figure(
        "surreal_eval_return_best", "gauge", "Mean return of the best evaluation.",
        lambda now: now.best_return,
    ),
    Figure("surreal_run_ending", "gauge", "1 if the run was asked to end, else 0.", lambda now: bool(now.stop_reason)),
    Figure(
        "surreal_run_age_seconds", "gauge", "Time since the run began or was resumed.",
        lambda now: now.age_s,
    ),
)  # fmt: skip
