"""How many runs fit on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.config import load_config
from surreal.plugins.sweep.processes import Room, fits, need_of, num_at_once, room_here

GIB = 1 << 30


def test_run_needs_a_core_for_each_process_that_computes() -> None:
    assert need_of(load_config("cartpole-dqn")).cores == 3  # a learner and two agents; the evaluation waits mostly
    assert need_of(load_config("bandit-pg", ["run.deterministic=true"])).cores == 1
    assert need_of(load_config("cartpole-dqn", ["agent.count=7"])).cores == 8


def test_run_with_a_larger_replay_needs_more_memory() -> None:
    small, large = (need_of(load_config("cartpole-dqn", [f"replay.max_bytes={size}"])) for size in ("64mb", "1064mb"))
    assert large.bytes - small.bytes == 2 * 1000 * (1 << 20)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=20),
    st.integers(1, 16),
    st.integers(0, 32),
)
def test_what_runs_never_exceeds_the_room_unless_it_is_alone(
    needs: list[tuple[int, int]], cores: int, size: int
) -> None:
    room, running = Room(cores, size), list[Room]()
    for need in needs:
        if fits(Room(*need), running, room, None):
            running.append(Room(*need))
    assert running
    if len(running) > 1:
        assert sum(need.cores for need in running) <= cores
        assert sum(need.bytes for need in running) <= size


@pytest.mark.parametrize(
    ("need", "parallel", "count"),
    [
        (Room(2, GIB), None, 4),
        (Room(1, 3 * GIB), None, 2),
        (Room(99, 99 * GIB), None, 1),
        (Room(99, 99 * GIB), 5, 5),  # who says a number knows better
        (Room(1, GIB), 1, 1),
    ],
)
def test_number_of_runs_at_once(need: Room, parallel: int | None, count: int) -> None:
    assert num_at_once(need, Room(8, 8 * GIB), parallel) == count


def test_this_machine_has_room() -> None:
    assert room_here().cores >= 1
    assert room_here().bytes > 0


def test_room_in_a_container_has_the_memory_of_its_file_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"max": "1000", "current": "900", "stat": "inactive_file 500\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr("surreal.rlx.server.admission._CGROUP", tmp_path)
    assert room_here().bytes == 540  # nine tenths of 600
