"""Scaling on what learning needs: the claims of docs/autoscaling.md, on the model of benchmarks/autoscale."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.autoscale.controller import Autoscaler
from benchmarks.autoscale.fleet import Dynamics, Fleet, agents_needed
from benchmarks.autoscale.record import RECORDING
from benchmarks.autoscale.rule import DOWN, UP, Direction, Policy, Rule, Wish
from benchmarks.autoscale.scenarios import OnCpu, Phase, follow_learner, follow_sessions, starved
from benchmarks.autoscale.sessions import Serving

AGENTS, RLX = (Rule.load(f"scaledobject-{name}.yaml") for name in ("agents", "rlx"))
DYNAMICS = Dynamics.recorded()


@pytest.fixture(scope="module")
def phases() -> list[Phase]:
    return follow_learner(DYNAMICS, AGENTS)


def test_the_formula_finds_the_same_number_with_every_number_of_agents() -> None:
    """In the real runs that were recorded, whether learner or agents waited."""
    rows: list[dict[str, Any]] = json.loads(RECORDING.read_text())["rows"]
    found = [agents_needed(row) for row in rows]
    assert [row["agents"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["learner_waiting"] > 0.3 and rows[-1]["agents_waiting"] > 0.3
    assert max(found) / min(found) < 1.15
    (wish,) = AGENTS.wishes(
        {"surreal_agents_busy": rows[0]["agents_busy"], "surreal_learner_waiting_ratio": rows[0]["learner_waiting"]}
    ) or [None]
    assert wish is not None and wish.value == pytest.approx(found[0], abs=0.001)


@pytest.mark.parametrize("pods", [1, 2, 3, 4])
def test_the_model_waits_as_the_recorded_runs_did(pods: int) -> None:
    row = json.loads(RECORDING.read_text())["rows"][pods - 1]
    fleet = Fleet(DYNAMICS, pods=pods, rng=np.random.default_rng(0))
    waits = []
    while fleet.now_s < 60:
        fleet.step()
        waits.append(fleet.learner_waits)
    figures = fleet.figures()
    assert np.mean(waits[-120:]) == pytest.approx(row["learner_waiting"], abs=0.1)
    assert figures["surreal_agents_busy"] == pytest.approx(row["agents_busy"], rel=0.15)


def test_it_settles_within_a_minute_and_never_turns_round(phases: list[Phase]) -> None:
    assert {phase.event: phase.settled_s for phase in phases if phase.settled_s > 60} == {}
    assert {phase.event: phase.turns for phase in phases if phase.turns} == {}


def test_the_learner_starves_less_than_a_twentieth_of_the_time(phases: list[Phase]) -> None:
    assert starved(phases) < 0.05


def test_there_are_as_many_agents_as_learning_needs_and_hardly_more(phases: list[Phase]) -> None:
    needed = DYNAMICS.learner_rate / DYNAMICS.agent_rate
    for phase in phases:
        assert phase.load * needed * 0.98 <= phase.pods <= phase.load * needed * 1.25 + 2


def test_agents_that_die_and_metrics_that_are_missing_change_nothing(phases: list[Phase]) -> None:
    by_name = {phase.event: phase for phase in phases}
    assert by_name["half of the agents die"].pods == by_name["a learner 4 times as fast"].pods
    missing = by_name["no metrics for 2 minutes"]
    assert (missing.settled_s, missing.pods) == (0.0, by_name["a learner 5 times as fast"].pods)


def test_by_their_cpu_time_agents_that_wait_for_a_game_are_never_too_few() -> None:
    """The agents that were recorded sleep for most of a step, as those do whose game is elsewhere."""
    assert DYNAMICS.cpu < 0.5
    on_cpu = follow_learner(DYNAMICS, OnCpu())
    assert {phase.pods for phase in on_cpu} == {1}
    assert starved(on_cpu) > 0.5


def test_by_cpu_time_agents_that_compute_are_found_later_and_with_a_turn(phases: list[Phase]) -> None:
    on_cpu = follow_learner(replace(DYNAMICS, cpu=1.0), OnCpu())
    assert sum(phase.turns for phase in on_cpu) > 0
    assert sum(phase.settled_s for phase in on_cpu) > 3 * sum(phase.settled_s for phase in phases)
    assert sum(phase.pod_s for phase in on_cpu) > 1.15 * sum(phase.pod_s for phase in phases)


def test_rlx_servers_follow_their_sessions() -> None:
    found = follow_sessions(Serving(), RLX)
    assert [phase.pods for phase in found] == [1, 3, 10, 2]
    assert sum(phase.turns for phase in found) <= 1


def test_rlx_servers_follow_the_latency_where_sessions_are_few_and_each_costs_much() -> None:
    few, *_ = follow_sessions(Serving(row_s=0.006), RLX)
    assert few.pods >= 2  # 20 sessions: by their number one server would do
    assert few.waits < 0.05


def test_an_autoscaler_keeps_what_is_within_a_tenth() -> None:
    def decide(value: float, pods: int) -> int:
        return Autoscaler(1, 100, UP, DOWN).decide(0.0, pods, pods, [Wish(value, 1.0, "AverageValue")])

    assert [decide(10 * share, 10) for share in (0.91, 1.0, 1.09, 1.11)] == [10, 10, 10, 12]


def test_an_autoscaler_counts_ready_pods_where_a_metric_is_no_total() -> None:
    scaler = Autoscaler(1, 100, UP, DOWN)
    assert scaler.decide(0.0, 8, 4, [Wish(2.0, 1.0, "Value")]) == 8  # four are on their way
    assert Autoscaler(1, 6, UP, DOWN).decide(0.0, 4, 4, [Wish(2.0, 1.0, "Value")]) == 6
    assert scaler.decide(15.0, 8, 8, None) == 8


def test_an_autoscaler_takes_the_calmest_of_a_window_and_no_more_than_a_policy_allows() -> None:
    down = Direction(40.0, (Policy("Pods", 2, 15.0),))
    scaler = Autoscaler(1, 100, Direction(0.0, (Policy("Percent", 100, 15.0),)), down)
    pods, seen = 10, []
    for now_s, value in ((0, 10.0), (15, 4.0), (30, 4.0), (45, 4.0), (60, 4.0), (75, 4.0), (90, 30.0), (105, 30.0)):
        pods = scaler.decide(float(now_s), pods, pods, [Wish(value, 1.0, "AverageValue")])
        seen.append(pods)
    assert seen == [10, 10, 10, 8, 6, 4, 8, 16]
