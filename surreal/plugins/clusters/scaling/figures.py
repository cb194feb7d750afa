"""The metrics of a run for Prometheus, computed from its heartbeats as `figures.yaml` says.

Names and units follow Prometheus' conventions: seconds and bytes, `_ratio` for a share between 0 and 1, `_total` for a
counter. Each metric has the label `run`, but no label for the process, because a run may have a thousand agents that
come and go. So their reports are added up here, in a way that remains correct while their number changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from surreal.config.yaml_tree import read_table
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.process.roles import LEARNER, RLX_SERVER
from surreal.run.view.run_view import RunView

#: Latency that is reported when sessions wait and none was answered, s.
_NO_ANSWER_S = 10.0


class Figure(NamedTuple):
    """A metric of each run."""

    name: str
    source: str  #: learners, mean, sum, view or by
    of: str  #: metric of a process, field of the view, or function
    help: str

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    def read(self, now: RunView) -> float | None:
        """Return its value; None if the run does not have it, or no process reports it now."""
        if self.source == "view":
            found: float | None = getattr(now, self.of)
            return found
        if self.source == "by":
            return _FUNCTIONS[self.of](now)
        if self.source == "learners":
            values = (beat.metrics.get(self.of) for beat in now.alive if beat.role == LEARNER.counts_as)
            return next((value for value in values if value is not None), None)
        known = _values(now, self.of)
        if not known:
            return None
        return sum(known) if self.source == "sum" else sum(known) / len(known)


def processes_by_role(now: RunView) -> dict[str, int]:
    """Count the living processes of each role; an RLX server is `rlx-server`, although its role is agent."""
    return dict(Counter(RLX_SERVER.name if _is_server(beat) else beat.role for beat in now.alive))


def _is_server(beat: Heartbeat) -> bool:
    return "rlx/active_sessions_count" in beat.metrics


def _values(now: RunView, metric: str) -> list[float]:
    found = (beat.metrics.get(metric) for beat in now.alive)
    return [value for value in found if value is not None and math.isfinite(value)]


def _waiting_s(now: RunView, *, is_queue: bool) -> float | None:
    """Apply Little's law: the mean waiting time is the number that wait, divided by the answers per second.

    A queue does not have the time in which a whole server waited for the learner.
    """
    wait = 0.0
    for beat in filter(_is_server, now.alive):
        names = ("rlx/waiting_sessions_count", "rlx/active_sessions_count", "agent/waiting_ratio")
        waits, sessions, share = (beat.metrics.get(name, 0.0) for name in names)
        wait += max(waits - share * sessions, 0.0) if is_queue else waits
    answers = sum(_values(now, "rlx/answers_per_s"))
    return min(wait / answers, _NO_ANSWER_S) if answers > 0 else _NO_ANSWER_S if wait > 0 else None


_FUNCTIONS: dict[str, Callable[[RunView], float | None]] = {
    "answer_s": lambda now: _waiting_s(now, is_queue=False),
    "queue_s": lambda now: _waiting_s(now, is_queue=True),
    "checkpoint_age_s": lambda now: max(_values(now, "learner/checkpoint_age_s"), default=None),
    "restarts": lambda now: len(now.lives) - len({name for name, _ in now.lives}),
    "is_ending": lambda now: bool(now.stop_reason),
}


FIGURES = tuple(
    Figure(name, source, of, text)
    for name, entry in read_table(__package__, "figures.yaml").items()
    for (source, of), (_, text) in [entry.items()]
)
