"""Shares of the time in which learner and agents wait for each other."""

from __future__ import annotations

import pytest

from surreal.run.session.acting import AgentWaits
from surreal.run.session.intake import WINDOW_S, ExperienceWaits
from tests.unit.run.session.fakes import Clock


class Batches:
    """Gives a batch when so much time has passed; None if that is longer than the learner waits."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_starved = True
        self.takes_s = 0.0

    def dequeue(self, timeout_s: float) -> str | None:
        self.clock.now_s += min(self.takes_s, timeout_s)
        return "batch" if self.takes_s <= timeout_s else None


def test_a_learner_waits_only_for_experience_and_only_once_it_has_begun() -> None:
    clock = Clock()
    batches = Batches(clock)
    waits = ExperienceWaits(lambda: batches.is_starved, clock)

    def take(takes_s: float, *, learns_s: float = 0.0) -> None:
        batches.takes_s = takes_s
        waits.take(batches.dequeue, 0.2)
        clock.now_s += learns_s

    take(30.0)
    take(0.1)  # the first batch: until here the replay was filled
    assert waits.metrics() == {"learner/wait_s_total": 0.0}
    for _ in range(10):
        take(0.1, learns_s=0.3)
    assert waits.metrics() == pytest.approx({"learner/wait_s_total": 1.0, "learner/waiting_ratio": 0.25})
    take(30.0)  # in vain, but it counts while it lasts
    assert waits.metrics()["learner/wait_s_total"] == pytest.approx(1.2)
    batches.is_starved = False  # experience is there: what takes so long is the replay itself
    take(0.1)
    assert waits.metrics()["learner/wait_s_total"] == pytest.approx(1.2)


def test_an_agent_that_has_just_come_is_busy_for_a_part_of_the_window() -> None:
    clock, waited = Clock(), [5.0]
    waits = AgentWaits(lambda: waited[0], clock)
    clock.now_s += WINDOW_S / 4
    assert waits.metrics() == {"agent/waiting_ratio": 0.0, "agent/busy_ratio": 0.25}
    for _ in range(20):
        clock.now_s += 1.0
        waited[0] += 0.4
        metrics = waits.metrics()
    assert metrics == pytest.approx({"agent/waiting_ratio": 0.4, "agent/busy_ratio": 0.6})


def test_what_agents_do_together_is_known_while_their_number_changes() -> None:
    """Four agents that wait half of the time do as much as two that never wait, and as three that change over."""
    clock = Clock()
    waited = dict.fromkeys(range(4), 0.0)
    agents = [AgentWaits(lambda name=name: waited[name], clock) for name in range(4)]
    for _ in range(30):
        clock.now_s += 1.0
        for name in waited:
            waited[name] += 0.5
        together = sum(each.metrics()["agent/busy_ratio"] for each in agents)
    assert together == pytest.approx(2.0)
