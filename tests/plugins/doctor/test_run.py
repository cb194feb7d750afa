"""The verdicts on a run, on looks that are made by hand: one that is good, and one that is bad for each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from surreal.config import Config, load_config
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.doctor.finding import Finding, Severity
from surreal.plugins.doctor.look import Look, Point, Record, clocks, counts, memory, size, usage
from surreal.plugins.doctor.run import alive, logged, parameters, waiting
from surreal.run.view.reader import RunView

MIB = 1 << 20
SPAN_S = 60.0


def beat(name: str, **changes: Any) -> Heartbeat:
    role = name.partition("-")[0]
    return Heartbeat(
        **{"id": name, "role": role, "name": name, "pid": 7, "host": "here", "started": 0.0, "time": 90.0, **changes}
    )


def record(
    name: str, *, offsets_s: tuple[float, ...] = (0.0, 0.0), errors: tuple[str, ...] = (), **ends: Any
) -> Record:
    """A process with metrics at the beginning and at the end of the window; `a__b=(1, 2)` is the metric `a/b`."""
    series = {
        key.replace("__", "/", 1): (Point(0.0, float(first)), Point(SPAN_S, float(last)))
        for key, (first, last) in ends.items()
    }
    return Record(name, name, name.partition("-")[0], offsets_s, errors, series)


LEARNER = {
    "learner__updates_total": (0, 600),
    "learner__optimize_ms": (80, 80),
    "broadcast__version": (0, 600),
    "learner__policy_lag_versions": (2, 2),
    "replay__env_steps_total": (0, 60_000),
    "replay__samples_total": (0, 1_920_000),
    "replay__samples_per_insert": (32, 32),
    "replay__transitions_count": (50_000, 50_000),
    "replay__fill_ratio": (0.9, 0.9),
    "replay__redis_bytes": (10 * MIB, 20 * MIB),
}
AGENT = {
    "agent__env_steps_total": (0, 30_000),
    "sender__wait_s_total": (0, 6),
    "listener__version": (0, 599),
    "listener__age_s": (1, 1),
}


def look(
    *overrides: str,
    learner: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
    beats: Iterable[Heartbeat] | None = None,
    records: Iterable[Record] | None = None,
    **view: Any,
) -> Look:
    """A healthy run, with changes."""
    found = tuple(beats) if beats is not None else (beat("learner"), beat("agent-0"), beat("eval"))
    made = records or (
        record("learner", **{**LEARNER, **(learner or {})}),
        record("agent-0", **{**AGENT, **(agent or {})}),
    )
    config: Config = load_config("cartpole-dqn", ["replay.samples_per_insert=32", *overrides])
    shown = RunView(found, **{"version": 600, "updates": 600, "beats": found, **view})
    return Look("x", config, shown, tuple(made))


def faults(findings: Iterable[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


def room(used: int, maximum: int) -> Callable[[Look], Iterator[Finding]]:
    return lambda seen: memory(seen, used_bytes=used * MIB, maxmemory_bytes=maximum * MIB)


FREE = room(30, 1024)
CHECKS = (alive, logged, parameters, usage, size, waiting, counts, clocks, FREE)


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_run_has_no_fault(check: Callable[[Look], Iterator[Finding]]) -> None:
    findings = list(check(look()))
    assert faults(findings) == []
    assert findings or check is logged  # it says what is all right


NOTHING_MOVES = dict.fromkeys(LEARNER, (5, 5))
PARAMETER_SERVERS = (
    "learner.class=surreal.learner.A2CLearner",
    "learner.gradients=agents",
    "model.class=surreal.model.ActorCritic",
    "agent.class=surreal.agent.PolicyAgent",
    "replay.class=surreal.replay.FIFOReplay",
    "replay.samples_per_insert=null",
)


@pytest.mark.parametrize(
    ("check", "seen", "fault", "text"),
    [
        # processes
        (alive, look(beats=[beat("agent-0", age_s=99.0)], stop_reason="done"), "run-over", "the run is over: done"),
        (alive, look(beats=[beat("learner", age_s=99.0), beat("eval")]), "learner-dead", "heartbeat 99 s ago"),
        (alive, look(beats=[beat("learner"), beat("agent-1", age_s=600.0)]), "process-dead", "agent-1 on here"),
        (alive, look(beats=[beat("learner", hangs_in="the loop: step()")]), "process-hangs", "learner: the loop"),
        (alive, look(beats=[beat("learner", id=str(n)) for n in range(3)]), "process-restarts", "was started 3 times"),
        (logged, look(records=[record("eval", errors=("a", "no  room"))]), "errors-logged", "eval: no room"),
        # parameters
        (
            parameters,
            look(agent={"listener__version": (9, 9), "listener__age_s": (40, 40)}),
            "parameters-stale",
            "version 9",
        ),
        (parameters, look(learner={"learner__policy_lag_versions": (400, 400)}), "policy-lag", "which took 40 s"),
        # waits
        (waiting, look(agent={"sender__wait_s_total": (0, 48)}), "agents-wait-for-credit", "agents wait 80%"),
        (
            waiting,
            look("replay.samples_per_insert=null", agent={"sender__wait_s_total": (0, 48)}),
            "agents-wait-for-room",
            "agents wait 80%",
        ),
        (waiting, look(learner={"learner__optimize_ms": (5, 5)}), "learner-starved", "the learner computes 5%"),
        (
            waiting,
            look(*PARAMETER_SERVERS, agent={"gradients__wait_s_total": (0, 40)}),
            "agents-wait-for-servers",
            "agents wait 67%",
        ),
        (waiting, look(learner=NOTHING_MOVES, agent={"agent__env_steps_total": (5, 5)}), "run-stalled", "for 60 s"),
        (waiting, look(beats=[beat("eval", waits_for=("waiting for Redis",))]), "waits-for-redis", "eval: waiting"),
        (waiting, look(beats=[beat("eval", waits_for=("parameters",))]), "waits-for-others", "eval: parameters"),
        # the replay
        (usage, look(learner={"replay__samples_total": (0, 60_000)}), "samples-per-insert-off", "are 1 in the last"),
        (
            usage,
            look(
                "replay.samples_per_insert=null",
                learner={"replay__samples_per_insert": (0.2, 0.2), "replay__evicted_chunks_total": (0, 9)},
            ),
            "experience-unused",
            "sampled 0.2 times",
        ),
        (
            usage,
            look("replay.samples_per_insert=null", learner={"replay__samples_per_insert": (900, 900)}),
            "experience-overused",
            "sampled 900 times",
        ),
        (
            size,
            look(
                "replay.max_bytes=20mb",
                learner={"replay__fill_ratio": (0.3, 0.3), "replay__evicted_chunks_total": (0, 9)},
            ),
            "replay-bound-by-bytes",
            "30% of the capacity",
        ),
        (room(130, 140), look("replay.max_bytes=100mb"), "redis-fills-up", "10 MiB are left: full in 60 s"),
        # clocks
        (clocks, look(records=[record("eval", offsets_s=(0.0, 9.0, 9.0))]), "process-clock-skew", "9.0 s behind"),
        (clocks, look(records=[record("eval", offsets_s=(0.0, 1.0, 4.0))]), "clock-jumps", "jumped by 3.0 s"),
        (clocks, look(beats=[beat("eval", age_s=-30.0)]), "clock-jumps", "30 s from now"),
    ],
)
def test_a_fault_is_found_and_no_other(
    check: Callable[[Look], Iterator[Finding]], seen: Look, fault: str, text: str
) -> None:
    findings = [finding for finding in check(seen) if finding.severity is not Severity.OK]
    assert [finding.fault for finding in findings] == [fault]
    assert text in findings[0].text
    assert findings[0].remedy


def test_what_is_counted_is_found_with_the_processes_that_count_it() -> None:
    seen = look(agent={"sender__dropped_steps_total": (100, 350)})
    (finding,) = counts(seen)
    assert (finding.fault, finding.text) == (
        "steps-dropped",
        "350 env steps dropped, 250 of them in the last minute (agent-0)",
    )


@pytest.mark.parametrize(("ends", "found"), [((7, 7), []), ((7, 8), ["steps-dropped"])])
def test_what_was_dropped_long_ago_is_forgotten(ends: tuple[int, int], found: list[str]) -> None:
    assert faults(counts(look(agent={"sender__dropped_steps_total": ends}))) == found


def test_what_cannot_be_undone_is_not_forgotten() -> None:
    assert faults(counts(look(learner={"learner__skipped_updates_total": (3, 3)}))) == ["updates-skipped"]


def test_only_living_processes_are_counted() -> None:
    seen = look(agent={"sender__dropped_steps_total": (0, 9)}, beats=[beat("learner"), beat("agent-0", age_s=99.0)])
    assert faults(counts(seen)) == []


@pytest.mark.parametrize("check", [parameters, waiting, usage])
def test_a_run_that_was_told_to_end_is_left_in_peace(check: Callable[[Look], Iterator[Finding]]) -> None:
    assert faults(check(look(learner=NOTHING_MOVES, stop_reason="Ctrl-C"))) == []


def test_waits_for_the_limiter_are_its_purpose() -> None:
    seen = look(beats=[beat("learner", waits_for=("the limiter: more experience",)), beat("agent-0")])
    assert faults(waiting(seen)) == []


def test_enough_agents_are_proposed() -> None:
    agents = [record(f"agent-{n}", **{**AGENT, "sender__wait_s_total": (0, 45)}) for n in range(8)]
    beats = [beat("learner"), *(beat(f"agent-{n}") for n in range(8))]
    (finding,) = [f for f in waiting(look(records=[record("learner", **LEARNER), *agents], beats=beats)) if f.fault]
    assert finding.remedy.startswith("2 of 8 agents would send as much (agent.count); ")
