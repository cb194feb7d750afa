"""What a run shows from its start to its end, with and without a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.view.live.progress import Display
from surreal.run.view.live.text import describe_drain, describe_troubles, starting_phase
from surreal.run.view.run_view import RunView

LEARNER = Heartbeat("learner-x", "learner", "learner", 1, "host", 0.0, 0.0)
AGENT = Heartbeat("agent-0-x", "agent", "agent-0", 2, "host", 0.0, 0.0)


def test_the_phase_of_a_start_is_named() -> None:
    assert starting_phase(RunView((AGENT,))) == "waiting for the learner to start"
    filling = replace(LEARNER, waits_for=("filling the replay, 340/1000",))
    assert starting_phase(RunView((AGENT, filling))) == "filling the replay, 340/1000"
    assert starting_phase(RunView((LEARNER,))) == "waiting for the first update"
    assert starting_phase(RunView((filling,), updates=1)) == ""
    dead = replace(LEARNER, age_s=60.0)
    assert starting_phase(RunView((dead,))) == "waiting for the learner to start"


def test_waits_and_hangs_are_shown_with_the_processes_that_have_them() -> None:
    beats = [replace(AGENT, name=f"agent-{i}", waits_for=("waiting for credit",)) for i in range(5)]
    beats.append(replace(LEARNER, hangs_in="the main loop hangs in learn (my.py line 3)"))
    beats.append(replace(AGENT, name="agent-9", age_s=99.0, waits_for=("waiting for nothing any more",)))
    assert describe_troubles(RunView(tuple(beats))) == [
        ("waiting", "agent-0 and 4 more: waiting for credit"),
        ("hanging", "learner: the main loop hangs in learn (my.py line 3)"),
    ]


def test_the_drain_says_who_still_does_what() -> None:
    waiting = [("agent-0", "the last experience"), ("agent-1", "the last experience"), ("eval", "the last round")]
    text = "draining: agent-0, agent-1: the last experience; eval: the last round"
    assert describe_drain(waiting) == text
    assert describe_drain(waiting, can_hurry=True) == f"{text} (Ctrl-C again ends it faster)"


def shown(*, is_quiet: bool = False) -> str:
    """What is on a console without a terminal, of a run of 12 s."""
    text, now = io.StringIO(), [0.0]
    filling = replace(LEARNER, waits_for=("filling the replay, 1/1000",))
    with Display("my-run", Console(file=text), is_quiet=is_quiet, clock=lambda: now[0]) as progress:
        progress.phase("starting Redis")
        for second in range(1, 6):
            now[0] = float(second)
            waits = f"filling the replay, {second * 100}/1000"
            progress.show(RunView((replace(filling, waits_for=(waits,)),), env_steps=100 * second))
        for second in range(6, 12):
            now[0] = float(second)
            progress.show(RunView((LEARNER, AGENT), env_steps=100 * second, updates=second))
        progress.phase("draining: learner writes its checkpoint")
        progress.finish(RunView((), env_steps=1200, updates=12, eval_return=9.0, best_return=10.0))
    return text.getvalue()


def test_without_a_terminal_phases_and_facts_are_lines() -> None:
    lines = [line.strip() for line in shown().splitlines()]
    assert lines[:2] == ["time 0 s  starting Redis", "time 1 s  filling the replay, 100/1000"]
    assert lines[2].startswith("time 5 s  env steps 500 (0/s)")
    assert lines[2].endswith("waiting learner: filling the replay, 500/1000")
    assert "updates" not in lines[2]  # no zeros
    assert lines[3].startswith("time 10 s  env steps 1,000 (0/s)  updates 10")
    assert lines[4] == "time 11 s  draining: learner writes its checkpoint"
    assert lines[5] == "my-run"
    final = " ".join(" ".join(lines[6:]).split())
    assert "env steps 1,200 updates 12" in final
    assert "best return 10.0" in final


def test_quiet_shows_nothing() -> None:
    assert shown(is_quiet=True) == ""


def test_on_a_terminal_the_phase_shows_before_there_is_a_snapshot_and_the_last_table_stays() -> None:
    text = io.StringIO()
    with Display("my-run", Console(file=text, force_terminal=True, width=100)) as progress:
        progress.phase("starting Redis")
        assert progress._live is not None
        progress._live.refresh()
        assert "starting Redis" in text.getvalue()
        assert "env steps" not in text.getvalue()
        progress.finish(RunView((), env_steps=1200))
    assert "1,200" in text.getvalue()


def test_a_terminal_counts_how_full_the_replay_is() -> None:
    text, now = io.StringIO(), [0.0]
    console = Console(file=text, force_terminal=True, width=100)
    with Display("my-run", console, clock=lambda: now[0]) as progress:
        assert progress._live is not None
        for second, transitions in enumerate((340, 680)):
            now[0] = float(second)
            filling = replace(LEARNER, waits_for=(f"filling the replay, {transitions}/1000",))
            progress.show(RunView((filling,), env_steps=transitions))
            progress._live.refresh()
            assert f"filling the replay, {transitions}/1000, {second} s" in text.getvalue()
        progress.show(RunView((LEARNER,), env_steps=1000, updates=1))
        text.truncate(0)
        progress._live.refresh()
        assert "filling" not in text.getvalue()
