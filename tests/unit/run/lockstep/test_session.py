"""Metrics of a deterministic run: those of a past checkpoint interval are reported once, whenever telemetry asks."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.base.metrics import Reading
from surreal.run.lockstep import session


def interval(*steps: int) -> Any:
    """Make the learner of an interval, which has done an update at each of these env steps."""
    readings = [Reading(0.0, step, {}) for step in steps]

    def take() -> list[Reading]:
        taken, readings[:] = list(readings), []
        return taken

    learner = SimpleNamespace(readings=SimpleNamespace(take=take))
    return SimpleNamespace(learner=learner, begin=lambda: None, counts=lambda: None)


def test_readings_of_intervals_that_telemetry_missed_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = iter([interval(1, 2), interval(3), interval(4)])
    monkeypatch.setattr(session, "LockstepLearner", lambda *_, **__: next(coming))
    lockstep: Any = session.LockstepSession.__new__(session.LockstepSession)
    vars(lockstep).update(_learner=None, _counts=None, _readings=[], _stack=ExitStack(), process=None, _store=None)
    for _ in range(3):
        lockstep._next(is_resumed=False)
    assert [reading.step for reading in lockstep._take_readings()] == [1, 2, 3, 4]
    assert lockstep._take_readings() == []
