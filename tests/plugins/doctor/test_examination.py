"""The sections that a subject has, their order, and what is left out after a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.plugins.doctor import examination as module
from surreal.plugins.doctor import server
from surreal.plugins.doctor.examination import Examination
from surreal.plugins.doctor.finding import Finding, fault, ok
from surreal.plugins.doctor.subject import Subject

CONFIG = load_config("cartpole-dqn")
MACHINE = Subject("this machine")
PRESET = Subject("cartpole-dqn", CONFIG, "cartpole-dqn")
RUN = Subject("run x", CONFIG, address="redis://127.0.0.1:1", run="x")
ENDED = Subject("run x, which has ended", CONFIG, folder=Path("runs/x"), has_ended=True)


@pytest.mark.parametrize(
    ("subject", "only", "sections"),
    [
        (MACHINE, (), ("installation", "redis", "clocks")),
        (PRESET, (), ("installation", "redis", "clocks", "environment", "model")),
        (RUN, (), ("installation", "redis", "clocks", "run")),
        (ENDED, (), ("installation", "run")),
        (PRESET, ("model", "redis"), ("redis", "model")),
        (RUN, ("environment",), ("environment",)),
    ],
)
def test_a_subject_has_its_sections_in_order(
    subject: Subject, only: tuple[str, ...], sections: tuple[str, ...]
) -> None:
    assert Examination(subject, only).sections == sections


@pytest.mark.parametrize(
    ("subject", "only", "problem"),
    [
        (PRESET, "speed", "--only is 'speed'; it must be one of installation, redis"),
        (PRESET, "run", "--only run needs a run: surreal doctor NAME --only run"),
        (MACHINE, "model", "--only model needs a preset, a file or a run"),
    ],
)
def test_a_section_that_a_subject_lacks_is_refused(subject: Subject, only: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Examination(subject, [only])


def apart(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> list[list[str]]:
    """Stand in for the process in which environment and model are tried; returns the arguments of each."""
    calls: list[list[str]] = []

    def run(name: str, arguments: list[str]) -> Iterator[Finding]:
        calls.append(arguments)
        yield from found

    monkeypatch.setattr(module, "run_apart", run)
    return calls


def test_each_finding_has_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = apart(monkeypatch, ok("it works"))
    named: list[str] = []
    findings = list(Examination(PRESET, ["environment", "model"], is_quick=True).run(named.append))
    assert [finding.section for finding in findings] == named == ["environment", "model"]
    assert [(call[0], "--quick" in call, call[-1]) for call in calls] == [
        ("environment", True, "cartpole-dqn"),
        ("model", True, "cartpole-dqn"),
    ]
    assert calls[1][calls[1].index("--maxmemory") + 1] == str(CONFIG.own_redis_bytes)


def test_a_model_is_not_tried_without_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = apart(monkeypatch, fault("env-not-made", "no such environment"))
    findings = list(Examination(PRESET, ["environment", "model"]).run())
    assert [finding.fault for finding in findings] == ["env-not-made", "check-not-done"]
    assert len(calls) == 1


def test_nothing_more_is_asked_of_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(client: Any) -> Iterator[Finding]:
        yield fault("redis-away", "no answer")

    monkeypatch.setattr(server, "reachable", away)
    assert [finding.fault for finding in Examination(RUN, ["redis", "clocks", "run"]).run()] == ["redis-away"]


def test_a_machine_without_a_named_server_is_all_right() -> None:
    findings = list(Examination(MACHINE, ["redis", "clocks"]).run())
    assert [finding.fault for finding in findings] == ["", ""]
