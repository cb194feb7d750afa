"""`surreal top`: the live view of a run, from any terminal."""

from __future__ import annotations

import sys
import threading
from typing import Annotated

import typer

from surreal.cli.options import NoColor, RedisOption, RunDir, say, stdout_console


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(top)


def top(
    run_name: Annotated[str | None, typer.Argument(metavar="RUN", help="The run; default: the newest.")] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    no_color: NoColor = False,
) -> None:
    """Watch a run, from anywhere that reaches its Redis; q leaves, s asks the run to stop."""
    from surreal.main.commands.status import find_run
    from surreal.main.process.ending.interrupts import set_at_signals
    from surreal.main.process.ending.reasons import ExitCode
    from surreal.runs.top.top import Top

    stop = threading.Event()
    closed: list[str] = []

    def on_failure(reason: str) -> None:
        closed.append(reason)
        stop.set()

    console = stdout_console(on_failure, no_color=no_color)
    with find_run(run_name, address=redis, run_dir=run_dir) as client:
        # In a pipe they are another program's, such as those of `less`.
        view = Top(client, console, sys.stdin if console.is_interactive else None, stop)
        if once:
            view.print_once()
            return
        signals = set_at_signals(stop, is_abortable=True)
        reason = view.watch()
    if signals or closed:
        raise typer.Exit(ExitCode(128 + signals[0]) if signals else ExitCode.HANGUP)
    say(console, f"run {client.run} has ended: {reason}" if reason else f"run {client.run} goes on")
