"""Heartbeats put together, and how they are shown."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace

from rich.console import Console

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.view.live.progress import Display
from surreal.run.view.live.text import describe_numbers
from surreal.run.view.run_view import RunView, summarize_processes


def beat(role: str, name: str, age_s: float = 0.0, step: int = 0, **metrics: float) -> Heartbeat:
    named = {key.replace("__", "/"): value for key, value in metrics.items()}
    return Heartbeat(
        f"{name}-x", role, name, 1, "host", 0.0, 0.0, version=3, global_step=step, metrics=named, age_s=age_s
    )


BEATS = [
    beat("agent", "agent-0", step=90, agent__env_steps_per_s=10.0, agent__episode_return_recent=20.0),
    beat("agent", "agent-1", step=100, agent__env_steps_per_s=30.0, agent__episode_return_recent=40.0),
    beat("learner", "learner", learner__updates_total=7.0, learner__updates_per_s=2.0, replay__fill_ratio=0.5),
    beat("eval", "eval", eval__episode_return=111.0, eval__episode_return_best=222.0),
]


def test_agents_add_up() -> None:
    snapshot = summarize_processes(BEATS)
    assert (snapshot.env_steps, snapshot.steps_per_s, snapshot.episode_return) == (100, 40.0, 30.0)
    assert (snapshot.updates, snapshot.replay_fill, snapshot.eval_return) == (7, 0.5, 111.0)


def test_process_that_was_started_again_counts_once() -> None:
    snapshot = summarize_processes([*BEATS, beat("agent", "agent-0", age_s=3.0, agent__env_steps_per_s=1000.0)])
    assert snapshot.steps_per_s == 40.0
    assert len(snapshot.processes) == 4


def test_dead_process_is_listed_but_its_speed_does_not_count() -> None:
    snapshot = summarize_processes([beat("agent", "agent-0", age_s=60.0, step=50, agent__env_steps_per_s=10.0)])
    assert (snapshot.env_steps, snapshot.steps_per_s, len(snapshot.processes)) == (50, 0.0, 1)


def test_who_learns_speaks_for_learning_where_agents_do_a_part_of_it() -> None:
    agent = beat("agent", "agent-0", agent__env_steps_per_s=1.0, learner__updates_total=3.0, replay__fill_ratio=0.1)
    server = beat("learner", "ps", learner__updates_total=9.0, learner__updates_per_s=2.0)
    for beats in ([agent, server], [server, agent]):
        snapshot = summarize_processes(beats)
        assert (snapshot.updates, snapshot.updates_per_s, snapshot.replay_fill) == (9, 2.0, None)


def test_nothing_is_known_before_the_first_heartbeat() -> None:
    assert summarize_processes([]) == RunView(())
    assert dict(describe_numbers(RunView(()), 1.0))["return"] == "-"


def test_round_of_evaluation_that_is_under_way_shows_how_far_it_is() -> None:
    round_ = beat("eval", "eval", eval__played_episodes_count=3.0, eval__round_episodes_count=20.0)
    assert dict(describe_numbers(summarize_processes([round_]), 1.0))["eval return"] == "-, 3 of 20 episodes played"
    assert dict(describe_numbers(summarize_processes(BEATS), 1.0))["eval return"] == "111.0 (best 222.0)"


def test_counts_that_are_no_numbers_are_none() -> None:
    beats = [beat("eval", "eval", eval__rounds_total=math.nan), beat("learner", "x", learner__updates_total=math.inf)]
    assert (summarize_processes(beats).eval_rounds, summarize_processes(beats).updates) == (0, 0)


def test_the_last_warning_is_the_newest_of_all_processes() -> None:
    beats = [
        replace(beat("agent", "agent-0", age_s=60.0), warning="old", warned=-100.0),
        replace(beat("agent", "agent-1"), warning="new", warned=-20.0),
        replace(beat("agent", "agent-2"), warning="never", warned=math.nan),
    ]
    assert summarize_processes(beats).last_warning == ("agent-1", "new", 20.0)
    assert summarize_processes(BEATS).last_warning is None


def test_the_age_of_a_run_is_that_of_its_launcher_else_of_its_learner() -> None:
    learner = replace(beat("learner", "learner", age_s=1.0), started=-30.0)
    launcher = replace(beat("launcher", "launcher"), started=-50.0)
    assert summarize_processes([learner, *BEATS[:2]]).age_s == 31.0
    assert summarize_processes([learner, launcher]).age_s == 50.0
    assert summarize_processes([learner, replace(launcher, age_s=99.0)]).age_s == 31.0
    assert summarize_processes(BEATS[:2]).age_s is None


def test_json_names_every_process() -> None:
    plain = json.loads(json.dumps(summarize_processes(BEATS).to_json()))
    assert plain["env_steps"] == 100
    assert [process["name"] for process in plain["processes"]] == ["agent-0", "agent-1", "eval", "learner"]


def test_without_a_terminal_a_line_comes_every_few_seconds() -> None:
    now = [0.0]
    text = io.StringIO()
    with Display("run", Console(file=text), clock=lambda: now[0]) as progress:
        for second in range(12):
            now[0] = float(second)
            progress.show(summarize_processes(BEATS))
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert "env steps 100 (40/s)" in lines[0]
    assert "eval return 111.0 (best 222.0)" in lines[0]


def test_quiet_shows_nothing_and_a_terminal_gets_a_line_for_each_process() -> None:
    text = io.StringIO()
    with Display("run", Console(file=text), is_quiet=True, clock=iter(range(100)).__next__) as progress:
        for _ in range(10):
            progress.show(summarize_processes(BEATS))
    assert text.getvalue() == ""
    terminal = Console(file=text, force_terminal=True, width=100)
    with Display("run", terminal) as progress:
        progress.show(summarize_processes(BEATS))
    assert all(re.search(rf"^{name} ", text.getvalue(), re.MULTILINE) for name in ("agent-0", "agent-1", "eval"))


def test_ratings_are_shown_where_there_are_some() -> None:
    league = {"self_play__rating": 1234.4, "self_play__versions_count": 5.0, "self_play__games_total": 12_345.0}
    shown = dict(
        describe_numbers(summarize_processes([beat("learner", "learner", learner__updates_total=1, **league)]), 1.0)
    )
    assert shown["rating"] == "1234 (5 past versions, 12,345 games)"
    assert "rating" not in dict(describe_numbers(RunView(()), 1.0))
