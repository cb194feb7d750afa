"""What happens to a run while it is scaled, and how well the number of pods follows."""

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

#: Between two events, s, and a little more: the autoscaler's clock knows nothing of them.
PHASE_S = 603.0


class Scaler(Protocol):
    """What an autoscaler goes by: a `Rule`, or `OnCpu`."""

    @property
    def up(self) -> Direction: ...

    @property
    def down(self) -> Direction: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    def wishes(self, figures: Mapping[str, float], fleet: Any) -> Sequence[Wish] | None:
        """By the figures as Prometheus has them, or by the fleet's pods themselves."""


@dataclass(frozen=True)
class OnCpu:
    """What most people begin with: the CPU time of the pods, of what they request."""

    request: float = 1.0
    target: float = 0.8
    up: Direction = UP
    down: Direction = DOWN
    least: int = 1
    most: int = 100

    def wishes(self, figures: Mapping[str, float], fleet: Fleet) -> Sequence[Wish]:
        return [Wish(fleet.cpu_utilization(self.request), self.target, "Value")]


class Event(NamedTuple):
    """What changes at the beginning of a phase."""

    name: str
    happen: Callable[[Any], object]
    hides_metrics_s: float = 0.0  #: how long Prometheus gets nothing, from then on


def _nothing(_: object) -> None:
    """Change nothing."""


#: As many as these have to be right: the learner is another one, agents die, and Prometheus is away.
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
    """How it went after an event."""

    event: str
    load: float  #: times the recorded speed of the learner
    pods: int  #: at the end
    settled_s: float  #: after which the number of pods stayed as it was
    turns: int  #: times that it went the other way
    waits: float  #: share of the time that the learner waited; of sessions, how long they waited, s
    pod_s: float  #: time of all pods


def follow(
    fleet: Any, scaler: Scaler, events: Sequence[Event], step_s: float, waits: Callable[[], float]
) -> list[Phase]:
    """Let things happen, and the autoscaler do what it does."""
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
    """A run whose learner changes, and whose agents die."""
    fleet = Fleet(dynamics, pods=1, rng=np.random.default_rng(seed))
    return follow(fleet, scaler, events, STEP_S, lambda: fleet.learner_waits)


def follow_sessions(serving: Serving, scaler: Scaler, *, seed: int = 0) -> list[Phase]:
    """Servers whose sessions come and go."""
    servers = Servers(serving, pods=1, rng=np.random.default_rng(seed))
    return follow(servers, scaler, SESSIONS, servers.step_s, lambda: servers.answer_s)


def starved(phases: Sequence[Phase]) -> float:
    """Share of the time that the learner waited."""
    return sum(phase.waits for phase in phases) / len(phases)
