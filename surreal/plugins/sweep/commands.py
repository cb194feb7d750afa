"""`surreal sweep`: train many runs, over settings and seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console

from surreal.base.errors import StoppedError, SurrealError
from surreal.base.system.logs import setup_logging
from surreal.cli.options import Panel, RedisOption, say
from surreal.run.process.arguments import option
from surreal.run.process.ending import Ending, ExitCode, print_error
from surreal.run.process.interrupts import Output


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.MANY)(sweep)


def sweep(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The sweep; see docs/many-runs.md.")] = None,
    folder: Annotated[Path | None, option("DIR", "The sweep's folder; default: sweeps/NAME.", "--dir")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep in the folder.")] = False,
    redis: RedisOption = None,
    check: Annotated[bool, typer.Option("--check", help="Only check FILE; exit 0 if it can run, 2 if not.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only the results.")] = False,
) -> None:
    """Train many runs, over settings and seeds, as many at once as fit."""
    from surreal.plugins.sweep.command import check_sweep, run_sweep
    from surreal.plugins.sweep.view import result_table
    from surreal.run.process.interrupts import Interrupts

    if check:
        if file is None:
            raise typer.BadParameter("--check needs a FILE")
        try:
            say(Console(soft_wrap=True), check_sweep(file))
        except SurrealError as error:  # with the exit code of wrong arguments
            print_error(error)
            raise typer.Exit(2) from error
        return
    setup_logging("warning", console_level="warning")
    interrupts = Interrupts()
    console = Console(file=cast(IO[str], Output(sys.stdout, interrupts.end)), soft_wrap=True)
    with interrupts.installed():
        try:
            outcome = run_sweep(file, console, interrupts, path=folder, redis=redis, resume=resume, is_quiet=quiet)
        except StoppedError:
            ending = interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)
            say(console, f"ended before it began: {ending.reason}")
            raise typer.Exit(ending.exit_code) from None
    console.print(result_table(outcome.trials))
    for line in outcome.last_words():
        say(console, line)
    if outcome.ending.exit_code is ExitCode.FAILED:
        print_error(SurrealError(outcome.ending.reason))
    raise typer.Exit(outcome.ending.exit_code)
