"""What a command writes to: live on a terminal only, coloured as it is told."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import pytest

from surreal.cli.options import stdout_console


def ignore(reason: str) -> None:
    raise AssertionError(reason)


def console_on(stream: TextIO, monkeypatch: pytest.MonkeyPatch, *, no_color: bool = False) -> tuple[bool, bool, bool]:
    """Whether a console there is live, writes control codes, and has no colours."""
    monkeypatch.setattr(sys, "stdout", stream)
    console = stdout_console(ignore, no_color=no_color)
    return console.is_interactive, console.is_terminal, console.no_color


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_pipe_is_not_live_even_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        assert console_on(pipe, monkeypatch) == (False, False, False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert console_on(pipe, monkeypatch) == (False, True, False)
    os.close(reader)


def test_a_terminal_is_live_with_colours_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, side = os.openpty()
    with os.fdopen(side, "w") as stream:
        assert console_on(stream, monkeypatch) == (True, True, False)
        assert console_on(stream, monkeypatch, no_color=True) == (True, True, True)
        monkeypatch.setenv("NO_COLOR", "1")
        assert console_on(stream, monkeypatch) == (True, True, True)
        monkeypatch.setenv("TERM", "dumb")
        assert console_on(stream, monkeypatch)[0] is False
    os.close(terminal)
