"""What children warn of reaches the person who started them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from surreal.run.view.live.child_warnings import ChildWarnings


class Consoles:
    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.path = folder / "agent-0.out"
        self.path.write_text("10:00:00.000 WARNING agent-0 of an earlier run\n")
        paths = {"agent-0": self.path, "learner": folder / "learner.out"}
        self.warnings = ChildWarnings(paths, self.said.append, clock=lambda: self.now)

    def write(self, text: str) -> list[str]:
        """Add to the console of agent-0; returns what is passed on."""
        self.said.clear()
        with self.path.open("a") as file:
            file.write(text)
        self.warnings.poll()
        return list(self.said)


@pytest.fixture
def consoles(tmp_path: Path) -> Consoles:
    return Consoles(tmp_path)


def test_warnings_come_with_the_child_that_has_them_and_nothing_else_does(consoles: Consoles) -> None:
    text = (
        "some user's print\n"
        "10:00:01.000 WARNING agent-0 the replay is full\n"
        "10:00:01.000 INFO agent-0 lifecycle\n"
        "10:00:02.000 ERROR agent-0 the listener ends\n"
        "10:00:02.000 ERROR agent-0 agent-0 ends: the run's reason\n"
        "error: the run's reason\n"
    )
    assert consoles.write(text) == ["agent-0: warning: the replay is full", "agent-0: error: the listener ends"]


def test_warnings_go_on_when_the_launcher_has_moved_the_content_of_the_file(consoles: Consoles) -> None:
    assert consoles.write("10:00:01.000 WARNING agent-0 the first\n" + "x" * 80)
    os.truncate(consoles.path, 0)
    assert consoles.write("10:00:02.000 WARNING agent-0 the second\n") == ["agent-0: warning: the second"]


def test_all_that_a_program_of_an_app_prints_is_passed_on(tmp_path: Path) -> None:
    path, said = tmp_path / "environment-0.out", list[str]()
    output = ChildWarnings({"environment-0": path}, said.append, printing=["environment-0"])
    path.write_text("episode 1\n10:00:01.000 WARNING environment-0 lost\nepis")
    output.poll()
    assert said == ["environment-0 | episode 1", "environment-0: warning: lost"]
    with path.open("a") as file:
        file.write("ode 2\n")
    output.poll()
    assert said[2:] == ["environment-0 | episode 2"]


def test_waits_are_left_to_the_view_where_there_is_one(tmp_path: Path) -> None:
    path, said = tmp_path / "agent-0.out", list[str]()
    warnings = ChildWarnings({"agent-0": path}, said.append, has_waits=False)
    path.write_text("10:00:01.000 WARNING agent-0 waiting to send experience\n10:00:01.000 WARNING agent-0 other\n")
    warnings.poll()
    assert said == ["agent-0: warning: other"]


def test_a_line_counts_when_it_is_whole(consoles: Consoles) -> None:
    assert consoles.write("10:00:01.000 WARNING agent-0 half") == []
    assert consoles.write(" of it\n") == ["agent-0: warning: half of it"]


def test_the_same_is_said_once_a_minute(consoles: Consoles) -> None:
    line = "10:00:01.000 WARNING agent-0 {} frames were dropped\n"
    assert len(consoles.write(line.format(1))) == 1
    assert consoles.write(line.format(2)) == []
    consoles.now = 61.0
    assert consoles.write(line.format(3)) == ["agent-0: warning: 3 frames were dropped"]


def test_many_different_ones_are_counted(consoles: Consoles) -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    assert len(consoles.write("".join(f"10:00:01.000 WARNING agent-0 {name}\n" for name in names))) == 10
    consoles.now = 61.0
    assert consoles.write("10:00:01.000 WARNING agent-0 later\n") == [
        f"agent-0: 16 more warnings are in {consoles.path}",
        "agent-0: warning: later",
    ]
