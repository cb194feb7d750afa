"""The live view on a terminal: a real emulator sees what a person would."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pyte
import pytest
from rich.console import Console

from surreal.run.view.live.progress import Display
from surreal.run.view.live.trend import RunLimits
from surreal.run.view.run_view import RunView

RUNNING = RunView((), env_steps=500, updates=50, eval_return=3.0, eval_rounds=1, steps_per_s=10.0)


class Terminal:
    """A terminal whose size changes, and the console on it."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self._file = io.StringIO()
        self._seen = 0
        self.screen = pyte.HistoryScreen(width, height)
        self._stream = pyte.Stream(self.screen)
        self.console = Console(
            file=self._file, force_terminal=True, width=width, height=height, _environ={"TERM": "xterm"}
        )

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(height, width)
        self.console.size = (width, height)  # type: ignore[assignment]

    @property
    def lines(self) -> list[str]:
        """What is on it, without empty lines."""
        text = self._file.getvalue()
        self._stream.feed(text[self._seen :].replace("\n", "\r\n"))
        self._seen = len(text)
        return [line.rstrip() for line in self.screen.display if line.strip()]

    @property
    def has_cursor(self) -> bool:
        return bool(self.lines) and not self.screen.cursor.hidden


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def begin(terminal: Terminal) -> Display:
    return Display("my-run", terminal.console, RunLimits(max_env_steps=1000), clock=lambda: 0.0)


def test_a_picture_replaces_the_one_before_and_the_last_stays_as_text(terminal: Terminal) -> None:
    terminal.console.print("$ surreal run")
    with begin(terminal) as progress:
        for steps in (500, 600, 700):
            progress.show(replace(RUNNING, env_steps=steps))
            progress.redraw()
        assert [line.split()[0] for line in terminal.lines] == ["$", "my-run", "env", "700", "eval", "return"]
        assert not terminal.has_cursor
        progress.finish(replace(RUNNING, env_steps=1000))
    terminal.console.print("ended: max_env_steps")
    lines = terminal.lines
    assert [line.split()[0] for line in lines] == ["$", "my-run", "env", "1,000", "eval", "return", "ended:"]
    assert "100%" in lines[2]
    assert terminal.has_cursor


def test_what_is_written_meanwhile_stands_above_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    error = io.StringIO()
    monkeypatch.setattr(error, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", error)
    with begin(terminal) as progress:
        progress.show(RUNNING)
        progress.redraw()
        terminal.console.print("agent-0: warning: the replay is full")
        sys.stderr.write("12:00:00.000 WARNING surreal agent-1 was killed; " + "x" * 80 + "\n")  # as the log does
        progress.redraw()
        first, second, rest, title = terminal.lines[:4]
        assert first == "agent-0: warning: the replay is full"
        assert second.startswith("12:00:00.000 WARNING") and set(rest) == {"x"}
        assert title.split()[0] == "my-run"
        assert sum("my-run" in line for line in terminal.lines) == 1
    assert error.getvalue() == ""


def test_a_log_that_goes_elsewhere_still_does(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    error = io.StringIO()
    monkeypatch.setattr(sys, "stderr", error)
    with begin(terminal):
        sys.stderr.write("a warning\n")
    assert error.getvalue() == "a warning\n"


def test_an_exception_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.console.print("$ surreal run")
    with pytest.raises(KeyboardInterrupt), begin(terminal) as progress:
        progress.show(RUNNING)
        progress.redraw()
        raise KeyboardInterrupt
    assert terminal.lines == ["$ surreal run"]
    assert terminal.has_cursor


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 6), (20, 3), (160, 50)])
def test_after_a_resize_the_picture_fits_again(terminal: Terminal, width: int, height: int) -> None:
    """The emulator cuts lines where terminals break them, so the case of broken lines is the next test's."""
    with begin(terminal) as progress:
        progress.show(RUNNING)
        progress.redraw()
        assert terminal.lines
        terminal.resize(width, height)
        progress.redraw()
        progress.redraw()
        assert sum("my-run" in line for line in terminal.lines) == 1
        assert len(terminal.lines) < height
        progress.finish(RUNNING)
    assert terminal.has_cursor


def test_where_a_narrower_terminal_breaks_lines_all_of_them_are_removed(terminal: Terminal) -> None:
    with begin(terminal) as progress:
        progress.show(RUNNING)
        progress.redraw()
        drawn, longer = len(terminal.lines), sum(len(line) > 50 for line in terminal.lines)
        assert progress._live is not None
        render = progress._live._live_render
        assert str(render.position_cursor()).count("\x1b[1A") == drawn - 1
        terminal.resize(50, 24)
        assert longer >= 3
        assert str(render.position_cursor()).count("\x1b[1A") == drawn - 1 + longer


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"TERM": "xterm", "TTY_INTERACTIVE": "0"}], ids=["dumb", "told so"]
)
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(environment: dict[str, str]) -> None:
    text = io.StringIO()
    with Display("my-run", Console(file=text, force_terminal=True, _environ=environment)) as progress:
        progress.phase("starting Redis")
        assert text.getvalue() == "time 0 s  starting Redis\n"
        progress.finish(RUNNING)
    assert "\x1b[1A" not in text.getvalue()
