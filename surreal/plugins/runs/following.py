"""`surreal status`, `top` and `stop`."""

from __future__ import annotations

import json
import sys
import threading
from typing import Annotated

import typer
from rich.console import Console

from surreal.base.errors import ConfigError
from surreal.cli.options import NoColor, Panel, RedisOption, RunDir, RunName, say, stdout_console


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(rich_help_panel=Panel.LOOK)(status)
    app.command(rich_help_panel=Panel.TRAIN)(stop)
    app.command(rich_help_panel=Panel.LOOK)(top)


def status(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a run: in progress, from any machine that reaches its Redis, or over, from its folder."""
    from surreal.plugins.runs.status import ended_to_json, print_ended, print_status
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.view.reader import run_status

    try:
        with find_run(run_name, address=redis, run_dir=run_dir) as client:
            found = run_status(client)
    except RunOverError as over:
        if as_json:
            typer.echo(json.dumps(ended_to_json(over.folder.path)))
        else:
            print_ended(over, Console(soft_wrap=True))
        return
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        print_status(found, Console())


def stop(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove the run from Redis; only once its processes have ended.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let a run that has ended continue, if its processes --stay.")
    ] = False,
) -> None:
    """End a run: all of its processes drain."""
    from surreal.run.process import registry
    from surreal.run.process.finding import find_run

    if delete and undo:
        raise ConfigError("--undo lets the run continue, and --delete removes it: give one of them", key="--undo")
    with find_run(run_name, address=redis, run_dir=run_dir, must_be_known=not delete) as client:
        if undo:
            registry.clear_stop(client)
            typer.echo(f"run {client.run} may continue")
            return
        if not delete:
            registry.request_stop(client, "surreal stop")
            typer.echo(f"run {client.run} was asked to stop")
            return
        from surreal.plugins.runs.deleting import delete_run

        typer.echo(f"removed run {client.run}: {delete_run(client)} keys")


def top(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit.")] = False,
    no_color: NoColor = False,
) -> None:
    """Watch a run, from any machine that reaches its Redis; q leaves, s asks the run to stop."""
    from surreal.plugins.runs.status import print_ended
    from surreal.plugins.runs.top import Top
    from surreal.run.process.ending import ExitCode
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.process.interrupts import set_at_signals

    stop = threading.Event()
    closed: list[str] = []

    def on_failure(reason: str) -> None:
        closed.append(reason)
        stop.set()

    console = stdout_console(on_failure, no_color=no_color)
    try:
        found = find_run(run_name, address=redis, run_dir=run_dir)
    except RunOverError as over:
        print_ended(over, console)
        return
    with found as client:
        # In a pipe, keys belong to another program, such as `less`.
        view = Top(client, console, sys.stdin if console.is_interactive else None, stop)
        if once:
            view.print_once()
            return
        signals = set_at_signals(stop, is_abortable=True)
        reason = view.watch()
    if signals or closed:
        raise typer.Exit(ExitCode(128 + signals[0]) if signals else ExitCode.HANGUP)
    say(console, f"run {client.run} has ended: {reason}" if reason else f"run {client.run} continues")
