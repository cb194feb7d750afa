"""A campaign on a simulated run: disturbances begin, end and are healed, and a late recovery is a violation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.base.errors import SurrealError
from surreal.config import load_config
from surreal.plugins.chaos import campaign as module
from surreal.plugins.chaos.campaign import Campaign
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError
from surreal.plugins.chaos.observing import Life, Standing
from surreal.plugins.chaos.plan import ChaosOptions

NAMES = ("agent-0", "eval", "learner")


class Clock(threading.Event):
    """Time that passes only while a campaign waits; nothing sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.stops_at_s = 1e9

    def __call__(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        if self.now_s >= self.stops_at_s:
            self.set()
        return self.is_set()


class SimulatedAudit:
    """The looks at a run that acts and learns as long as `works` allows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.works: Callable[[float], bool] = lambda now_s: True
        self.names: tuple[str, ...] = NAMES
        self._steps = 0
        self.processes = SimpleNamespace(note=lambda process: None)

    def look(self) -> bool:
        self._steps += self.works(self._clock.now_s)
        return True

    @property
    def standing(self) -> Standing:
        lives = tuple(Life(name, name, name, 1, False, True, 1.0, 1, 0, 0, 0) for name in self.names)
        return Standing(10 * self._steps, self._steps, lives)


class Noted(Disturbance):
    """Notes when it begins, takes its turns and ends."""

    kind = Kind.CUT

    def __init__(self, target: str, error: Exception | None = None) -> None:
        super().__init__(target)
        self.calls: list[str] = []
        self._error = error

    def begin(self) -> None:
        self.calls.append("begin")

    def turn(self) -> None:
        self.calls.append("turn")

    def end(self) -> None:
        self.calls.append("end")
        if self._error is not None:
            raise self._error


class Stage:
    """A campaign with its clock, its audit and the disturbances that it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.clock = Clock()
        self.audit = SimulatedAudit(self.clock)
        self.given: list[Disturbance | None] = []
        self.lines: list[str] = []
        self.over = ""
        monkeypatch.setattr(module, "Audit", lambda *_: self.audit)
        monkeypatch.setattr(module, "Chooser", lambda *_: SimpleNamespace(choose=self._choose))
        subject: Any = SimpleNamespace(
            config=load_config("cartpole-dqn", ["agent.count=1"]), title="run x", is_new=True
        )
        defaults = {"kinds": (Kind.CUT,), "for_s": 20.0, "every_s": 2.0, "hold_s": 2.0, "within_s": 10.0}
        self.campaign = Campaign(
            subject,
            ChaosOptions(**{**defaults, **options}),
            SimpleNamespace(),  # type: ignore[arg-type]
            say=self.lines.append,
            stop=self.clock,
            is_over=lambda: self.over,
            clock=self.clock,
        )

    def _choose(self, *_: object, **__: object) -> tuple[Disturbance, str] | None:
        found = self.given.pop(0) if self.given else None
        return None if found is None else (found, "")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_a_whole_run_is_waited_for(stage: Stage) -> None:
    stage.audit.works = lambda now_s: now_s > 5.0
    stage.campaign.wait_until_whole()
    assert stage.campaign.expected == set(NAMES)
    assert 5.0 < stage.clock.now_s < 6.0


@pytest.mark.parametrize(
    ("names", "over", "problem"),
    [
        (("agent-0",), "", "run x is not whole after 180 s: eval, learner missing"),
        ((*NAMES, "extra"), "", "run x is not whole after 180 s: it does not act and learn"),
        (NAMES, "out of memory", "run x has ended before it could be disturbed: out of memory"),
    ],
)
def test_a_run_that_never_becomes_whole_is_refused(
    stage: Stage, names: tuple[str, ...], over: str, problem: str
) -> None:
    stage.audit.names, stage.over = names, over
    stage.audit.works = lambda now_s: False
    with pytest.raises(SurrealError, match=problem):
        stage.campaign.wait_until_whole()


def test_a_disturbance_lasts_as_planned_and_the_run_recovers(stage: Stage) -> None:
    cut = Noted("redis")
    stage.given = [None, cut]  # at first, no target is alive
    stage.campaign.wait_until_whole()
    stage.campaign.disturb()
    (recovery,) = stage.campaign.recoveries
    assert cut.calls[0] == "begin" and cut.calls[-1] == "end" and "turn" in cut.calls
    assert recovery.ended_s is not None
    assert recovery.ended_s - recovery.began_s == pytest.approx(recovery.held_s, abs=0.25)
    verdict = stage.campaign.verdict()
    assert verdict.holds
    assert verdict.evidence.startswith("1 of 1 times all processes were back, acted and learned again, within 0.")
    assert any("recovered" in line for line in stage.lines)


def test_a_run_that_stops_learning_breaks_the_promise_of_progress(stage: Stage) -> None:
    stage.given = [Noted("redis")]
    stage.campaign.wait_until_whole()
    stage.audit.works = lambda now_s: not stage.campaign.recoveries
    stage.campaign.disturb()
    verdict = stage.campaign.verdict()
    assert verdict.violations == (
        "after disturbance 1 (cut redis) the run did not recover within 10 s: no env step since",
    )
    assert stage.clock.now_s < 40.0  # it is not waited for forever


def test_a_process_that_stays_away_is_named(stage: Stage) -> None:
    stage.given = [Noted("redis")]
    stage.campaign.wait_until_whole()
    stage.audit.names = ("agent-0", "learner")
    stage.campaign.disturb()
    assert "within 10 s: eval not back" in stage.campaign.verdict().violations[0]


def test_everything_is_healed_whatever_an_end_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, every_s=0.1, hold_s=1000.0, for_s=1000.0)
    first, second, third = Noted("a"), Noted("b", OSError("away")), Noted("c")
    stage.given = [first, second, third]
    stage.campaign.wait_until_whole()
    stage.clock.stops_at_s = stage.clock.now_s + 5.0
    with pytest.raises(OSError, match="away"):
        stage.campaign.disturb()
    assert [each.calls[-1] for each in (first, second, third)] == ["end"] * 3


def test_a_disturbance_that_cannot_be_done_is_not_counted(stage: Stage) -> None:
    class Gone(Noted):
        def begin(self) -> None:
            raise NotDoneError("it is gone")

    stage.given = [Gone("agent-0"), Noted("redis")]
    stage.campaign.disturb()
    assert [recovery.target for recovery in stage.campaign.recoveries] == ["redis"]


def test_no_more_than_the_most_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, every_s=0.1, most=2)
    stage.given = [Noted(name) for name in "abcd"]
    stage.campaign.wait_until_whole()
    stage.campaign.disturb()
    assert [recovery.target for recovery in stage.campaign.recoveries] == ["a", "b"]
    assert stage.clock.now_s < 20.0
