"""Scenarios of load changes and failures, and measures of how well the number of pods follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from benchmarks.autoscale.controller import SYNC_S, Autoscaler
from benchmarks.autoscale.fleet import STEP_S, Dynamics, Fleet
from benchmarks.autoscale.rule import DOWN, UP, Direction, Wish, scrape_interval_s
from benchmarks.autoscale.sessions import Servers, Serving

#: Time between two events, s, plus a random part, because events are not synchronized with the autoscaler.
PHASE_S = 603.0


class Scaler(Protocol):
    """The rule of an autoscaler: a `Rule`, or `OnCpu`."""

    @property
    def up(self) -> Direction: ...

    @property
    def down(self) -> Direction: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    def wishes(self, figures: Mapping[str, float], fleet: Any) -> Sequence[Wish] | None:
        """Return the wishes, from Prometheus' metrics or from the fleet's pods."""


@dataclass(frozen=True)
class OnCpu:
    """Scaling by CPU utilization, the usual choice: the pods' CPU time as a share of their request."""

    request: float = 1.0
    target: float = 0.8
    up: Direction = UP
    down: Direction = DOWN
    least: int = 1
    most: int = 100

    def wishes(self, figures: Mapping[str, float], fleet: Fleet) -> Sequence[Wish]:
        return [Wish(fleet.cpu_utilization(self.request), self.target, "Value")]


class Event(NamedTuple):
    """A change at the beginning of a phase."""

    name: str
    happen: Callable[[Any], object]
    hides_metrics_s: float = 0.0  #: time from then on during which Prometheus gets no values


def _nothing(_: object) -> None:
    """Change nothing."""


#: Events of a run: changes of the learner's speed, dying agents, and a missing Prometheus.
LOAD: tuple[Event, ...] = (
    Event("one agent, as the run begins", _nothing),
    Event("a learner 4 times as fast", lambda fleet: setattr(fleet, "load", 4.0)),
    Event("half of the agents die", lambda fleet: fleet.lose(fleet.pods // 2)),
    Event("a learner half as fast", lambda fleet: setattr(fleet, "load", 2.0)),
    Event("a learner 5 times as fast", lambda fleet: setattr(fleet, "load", 10.0)),
    Event("no metrics for 2 minutes", _nothing, 120.0),
    Event("a learner a tenth as fast", lambda fleet: setattr(fleet, "load", 1.0)),
)
SESSIONS: tuple[Event, ...] = (
    Event("20 sessions come", lambda servers: servers.connect(20)),
    Event("180 more come", lambda servers: servers.connect(180)),
    Event("400 more come", lambda servers: servers.connect(400)),
    Event("500 go", lambda servers: servers.connect(-500)),
)


class Phase(NamedTuple):
    """The measures of the time after an event."""

    event: str
    load: float  #: speed of the learner as a multiple of the recorded one
    pods: int  #: number of pods at the end
    settled_s: float  #: time after which the number of pods no longer changed
    turns: int  #: number of reversals, from adding to removing or back
    waits: float  #: share of the time that the learner waited; for sessions, their wait, s
    pod_s: float  #: total time of all pods


def follow(
    fleet: Any, scaler: Scaler, events: Sequence[Event], step_s: float, waits: Callable[[], float]
) -> list[Phase]:
    """Run the events with an autoscaler, and return the measures of each phase."""
    autoscaler = Autoscaler(scaler.least, scaler.most, scaler.up, scaler.down)
    scrape_s, known, phases = scrape_interval_s(), dict[str, float](), list[Phase]()
    for event in events:
        begin_s, changes, waited, pod_s = fleet.now_s, list[tuple[float, int]](), 0.0, 0.0
        event.happen(fleet)
        while fleet.now_s < begin_s + PHASE_S:
            fleet.step()
            waited += waits() * step_s
            pod_s += fleet.pods * step_s
            passed_s = fleet.now_s - begin_s
            if fleet.now_s % scrape_s == 0:
                known = dict(fleet.figures()) if passed_s > event.hides_metrics_s else {}
            if fleet.now_s % SYNC_S == 0:
                wanted = autoscaler.decide(fleet.now_s, fleet.pods, fleet.ready, scaler.wishes(known, fleet))
                if wanted != fleet.pods:
                    changes.append((passed_s, wanted - fleet.pods))
                    fleet.scale(wanted)
        turns = sum(before * after < 0 for (_, before), (_, after) in pairwise(changes))
        settled_s = changes[-1][0] if changes else 0.0
        load = getattr(fleet, "load", 1.0)
        phases.append(Phase(event.name, load, fleet.pods, settled_s, turns, waited / PHASE_S, pod_s))
    return phases


def follow_learner(dynamics: Dynamics, scaler: Scaler, *, seed: int = 0, events: Sequence[Event] = LOAD) -> list[Phase]:
    """Simulate a run whose learner changes its speed, and whose agents die."""
    fleet = Fleet(dynamics, pods=1, rng=np.random.default_rng(seed))
    return follow(fleet, scaler, events, STEP_S, lambda: fleet.learner_waits)


def follow_sessions(serving: Serving, scaler: Scaler, *, seed: int = 0) -> list[Phase]:
    """Simulate servers whose sessions come and go."""
    servers = Servers(serving, pods=1, rng=np.random.default_rng(seed))
    return follow(servers, scaler, SESSIONS, servers.step_s, lambda: servers.answer_s)


def starved(phases: Sequence[Phase]) -> float:
    """Return the share of the time that the learner waited."""
    return sum(phase.waits for phase in phases) / len(phases)
