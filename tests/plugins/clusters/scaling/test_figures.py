"""Figures of a run, out of what its processes say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.clusters.scaling.figures import FIGURES, processes_by_role
from surreal.run.view.run_view import RunView, summarize_processes

ROOT = Path(__file__).parents[4]


def beat(role: str, name: str, metrics: dict[str, float], **more: Any) -> Heartbeat:
    return Heartbeat(f"{name}-x", role, name, 1, "host", 0.0, 0.0, metrics=metrics, **more)


def run_of(*beats: Heartbeat) -> RunView:
    return summarize_processes(beats)


def figures(now: RunView) -> dict[str, float]:
    return {figure.name: value for figure in FIGURES if (value := figure.read(now)) is not None}


def test_who_waits_is_told_of_all_agents_that_live() -> None:
    now = run_of(
        beat("learner", "learner", {"learner/waiting_ratio": 0.3, "learner/wait_s_total": 12.0}),
        beat("agent", "agent-0", {"agent/waiting_ratio": 0.5, "agent/busy_ratio": 0.5}),
        beat("agent", "agent-1", {"agent/waiting_ratio": 0.1, "agent/busy_ratio": 0.9}),
        beat("agent", "agent-2", {"agent/waiting_ratio": 0.0, "agent/busy_ratio": 1.0}, age_s=60.0),  # killed
        beat("agent", "agent-3", {"agent/env_steps_total": 1.0}),  # of an older version
    )
    found = figures(now)
    assert found["surreal_learner_waiting_ratio"] == 0.3
    assert found["surreal_learner_waiting_seconds_total"] == 12.0
    assert found["surreal_agents_waiting_ratio"] == pytest.approx(0.3)
    assert found["surreal_agents_busy"] == pytest.approx(1.4)
    assert processes_by_role(now) == {"learner": 1, "agent": 3}


def test_what_nobody_says_is_no_figure() -> None:
    now = run_of(beat("agent", "agent-0", {"agent/waiting_ratio": float("nan")}))
    found = figures(now)
    assert "surreal_learner_waiting_ratio" not in found  # the learner is restarted: nobody knows
    assert "surreal_updates_total" not in found  # or it would seem to begin again from 0
    assert "surreal_agents_waiting_ratio" not in found
    assert found["surreal_env_steps_total"] == 0


def test_latency_is_how_many_wait_by_how_many_are_answered() -> None:
    def server(name: str, waiting: float, answers_per_s: float) -> Heartbeat:
        metrics = {"rlx/active_sessions_count": 10.0, "rlx/waiting_sessions_count": waiting}
        return beat("agent", name, {**metrics, "rlx/answers_per_s": answers_per_s})

    now = run_of(server("rlx-server", 6.0, 100.0), server("rlx-server-1", 2.0, 300.0))
    found = figures(now)
    assert found["surreal_rlx_answer_seconds"] == pytest.approx(8 / 400)
    assert (found["surreal_rlx_sessions"], found["surreal_rlx_waiting_sessions"]) == (20.0, 8.0)
    assert processes_by_role(now) == {"rlx-server": 2}
    assert figures(run_of(server("rlx-server", 3.0, 0.0)))["surreal_rlx_answer_seconds"] == 10.0  # it hangs
    assert "surreal_rlx_answer_seconds" not in figures(run_of(server("rlx-server", 0.0, 0.0)))  # nobody plays


def test_what_a_server_waits_for_the_learner_is_no_queue() -> None:
    """Sixteen sessions of a server that waits for credit, four fifths of the time: more servers would not help."""
    metrics = {"rlx/active_sessions_count": 16.0, "rlx/waiting_sessions_count": 14.8, "rlx/answers_per_s": 200.0}
    found = figures(run_of(beat("agent", "rlx-server", {**metrics, "agent/waiting_ratio": 0.8})))
    assert found["surreal_rlx_answer_seconds"] == pytest.approx(0.074)
    assert found["surreal_rlx_queue_seconds"] == pytest.approx(0.010)


def test_agents_that_compute_gradients_do_not_speak_for_the_learner() -> None:
    learner = {"learner/updates_total": 500.0, "learner/waiting_ratio": 0.2}
    agent = {"learner/updates_total": 90.0, "replay/samples_total": 80.0, "agent/busy_ratio": 1.0}
    found = figures(run_of(beat("agent", "agent-0", agent), beat("learner", "ps-0", learner)))
    assert found["surreal_updates_total"] == 500
    assert "surreal_samples_total" not in found


def test_checkpoints_are_as_old_as_those_of_the_server_that_is_most_behind_and_failures_add_up() -> None:
    servers = [
        beat(
            "learner", f"ps-{index}", {"learner/checkpoint_age_s": age, "learner/checkpoint_upload_failures_total": 2.0}
        )
        for index, age in enumerate((5.0, 40.0, 6.0))
    ]
    found = figures(run_of(*servers))
    assert found["surreal_checkpoint_age_seconds"] == 40.0
    assert found["surreal_checkpoint_upload_failures_total"] == 6.0
    older = figures(run_of(beat("learner", "learner", {"learner/updates_total": 1.0})))
    assert not [name for name in older if "checkpoint" in name]


def test_names_are_as_prometheus_wants_them_and_the_page_has_each() -> None:
    own = {"surreal_redis_up", "surreal_scrape_seconds", "surreal_scrape_errors_total", "surreal_processes"}
    own |= {f"surreal_redis_{name}" for name in ("memory_bytes", "max_memory_bytes", "appendonly_ok")}
    made = {figure.name: figure for figure in FIGURES}
    assert len(made) == len(FIGURES)
    for name, figure in made.items():
        assert re.fullmatch(r"surreal(_[a-z]+)+", name)
        assert name.endswith("_total") == (figure.kind == "counter"), name
        assert not re.search(r"_(s|ms|count)$", name), f"{name}: a unit is a whole word"
    rows = re.findall(r"^\| (`surreal_.*?) \|", (ROOT / "docs" / "autoscaling.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(surreal_[a-z_]+)", row)]
    assert sorted(listed) == sorted({*made, *own})
