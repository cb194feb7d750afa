"""A line for each process, or for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.view.live.processes import process_lines
from surreal.run.view.live.text import UNICODE


def agent(index: int, **changes: object) -> Heartbeat:
    metrics = {"agent/env_steps_per_s": 100.0}
    beat = Heartbeat(f"a{index}", "agent", f"agent-{index}", 100 + index, "host", 0.0, 0.0, version=3, metrics=metrics)
    return replace(beat, **changes)  # type: ignore[arg-type]


LEARNER = Heartbeat("l", "learner", "learner", 1, "host", 0.0, 0.0, version=4, metrics={"learner/updates_per_s": 2.5})
EVAL = Heartbeat("e", "eval", "eval", 2, "host", 0.0, 0.0, version=2, metrics={"eval/rounds_total": 1.0})
LAUNCHER = Heartbeat("x", "launcher", "launcher", 3, "host", 0.0, 0.0)


def drawn(
    beats: Sequence[Heartbeat], restarts: Mapping[str, int] | None = None, *, width: int = 80, rows: int = 24
) -> list[list[str]]:
    """The columns of each line, without the titles."""
    lines = process_lines(beats, restarts or {}, width=width, rows=rows, glyphs=UNICODE)
    assert len(lines) <= rows
    assert all(line.cell_len <= width for line in lines)
    return [[cell.strip() for cell in line.plain.split("  ") if cell.strip()] for line in lines[1:]]


def test_each_process_says_what_it_does_a_second() -> None:
    beats = [LAUNCHER, EVAL, agent(10), agent(2, waits_for=("waiting for credit",)), LEARNER]
    assert drawn(beats, {"agent-10": 2}) == [
        ["learner", "2.5 updates/s", "4", "-", "ok"],
        ["agent-2", "100 steps/s", "3", "-", "waiting"],
        ["agent-10", "100 steps/s", "3", "2", "ok"],
        ["eval", "1 round", "2", "-", "ok"],
        ["launcher", "-", "-", "-", "ok"],
    ]


def test_dead_and_hanging_processes_say_so_and_have_no_rate() -> None:
    found = drawn([agent(0, age_s=75.0), agent(1, hangs_in="the main loop hangs in step")])
    assert found == [
        ["agent-0", "-", "3", "-", "dead, seen 1 min 15 s ago"],
        ["agent-1", "100 steps/s", "3", "-", "hanging"],
    ]


def test_where_there_is_no_room_a_role_is_one_line_but_for_what_needs_a_look() -> None:
    beats = [agent(index, host=f"host-{index % 4}") for index in range(40)]
    beats[7] = agent(7, age_s=75.0)
    beats[8] = agent(8, version=1, waits_for=("waiting for credit",))
    found = drawn([LEARNER, *beats, EVAL], {"agent-3": 1}, rows=12, width=120)
    assert found == [
        ["learner", "2.5 updates/s", "4", "-", "host, 1", "ok"],
        ["agent-3", "100 steps/s", "3", "1", "host-3, 103", "ok"],
        ["agent-7", "-", "3", "-", "host, 107", "dead, seen 1 min 15 s ago"],
        ["38 x agent", "3,800 steps/s", "1-3", "-", "5 hosts", "37 ok, 1 waiting"],
        ["eval", "1 round", "2", "-", "host, 2", "ok"],
    ]


def test_with_less_room_the_worst_have_lines_of_their_own_and_the_rest_is_counted() -> None:
    beats = [agent(index) for index in range(40)]
    beats[7], beats[8] = agent(7, age_s=75.0), agent(8, hangs_in="x")
    restarts = {f"agent-{index}": 1 for index in range(9)}
    assert [row[0] for row in drawn([LEARNER, *beats, EVAL], restarts, rows=6)] == [
        "learner", "agent-7", "agent-8", "38 x agent", "eval",
    ]  # fmt: skip
    rows = drawn([LEARNER, *beats, EVAL], restarts, rows=4)
    assert [row[0] for row in rows] == ["learner", "40 x agent", "eval"]
    assert rows[1][1:] == ["3,900 steps/s", "3", "9", "38 ok, 1 dead, 1 hanging"]
    assert [row[0] for row in drawn([LEARNER, *beats, EVAL], rows=3)] == ["learner", "2 more"]
    assert drawn([LEARNER, *beats, EVAL], rows=1) == drawn([]) == []


def test_a_narrow_terminal_keeps_name_and_state() -> None:
    assert drawn([agent(0)], width=60) == [["agent-0", "100 steps/s", "-", "ok"]]
    assert drawn([agent(0)], width=45) == [["agent-0", "100 steps/s", "ok"]]
    assert drawn([agent(0)], width=30) == [["agent-0", "ok"]]
    assert drawn([agent(0)], width=5) == [["a", "ok"]]


def test_a_name_from_elsewhere_steers_no_terminal() -> None:
    (line,) = drawn([agent(0, name="agent\x1b[2J\n-0")])
    assert line[0] == "agent [2J -0"
