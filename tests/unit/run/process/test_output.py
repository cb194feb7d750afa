"""An output that nobody reads any more raises nowhere."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.live import Live

from surreal.run.process.interrupts import Output


def test_a_closed_pipe_is_reported_once_and_everything_after_it_is_dropped() -> None:
    reader, writer = os.pipe()
    reasons: list[str] = []
    with os.fdopen(writer, "w", buffering=1) as stream:
        output = Output(stream, reasons.append)
        assert output.write("read\n") == 5
        os.close(reader)
        assert output.write("lost\n") == 5
        output.flush()
        assert output.write("dropped\n") == 8
        assert not output.isatty()
    assert reasons == ["its output was closed"]


def test_a_closed_terminal_stops_no_live_view() -> None:
    terminal, side = os.openpty()
    reasons: list[str] = []
    stdout = sys.stdout
    with os.fdopen(side, "w", buffering=1) as stream:
        console = Console(file=Output(stream, reasons.append), soft_wrap=True)  # type: ignore[arg-type]
        assert console.is_terminal
        with Live("first", console=console, refresh_per_second=50, transient=True) as live:
            os.close(terminal)
            live.update("second", refresh=True)
            console.print("third")
        console.print("fourth")
    assert reasons == ["its output was closed"]
    assert sys.stdout is stdout


def test_a_full_disk_is_a_reason_of_its_own() -> None:
    reasons: list[str] = []
    with Path("/dev/full").open("w", encoding="utf-8") as stream:
        output = Output(stream, reasons.append)
        output.write("text")
        output.flush()
    assert reasons == ["its output cannot be written: [Errno 28] No space left on device"]


def test_a_character_that_the_terminal_does_not_have_is_no_reason_to_end() -> None:
    reasons: list[str] = []
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    output = Output(stream, reasons.append)
    assert output.write("größer\n") == 7
    output.write("and on\n")
    stream.seek(0)
    assert stream.read() == "gr??er\nand on\n"
    assert reasons == []
