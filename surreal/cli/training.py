"""`surreal run`, and a command for each role that a run is made of."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console

from surreal.cli.options import Overrides, RedisOption, RunDir, say
from surreal.errors import ConfigError, StoppedError, SurrealError
from surreal.main.process.ending.output import Output
from surreal.main.process.ending.reasons import Ending, ExitCode
from surreal.main.process.reports import print_error
from surreal.main.process.roles import AGENT, EVAL, LEARNER, ROLES, Role
from surreal.utils.logs import setup_logging

#: Role commands hand all their arguments to the role's own parser, which `python -m surreal.main.ROLE` uses too.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    """Add `run` and the commands of all roles."""
    app.command()(run)
    for role in (role for role in ROLES if role.has_command):
        app.command(name=role.name, help=role.summary, context_settings=_PASS_ON)(_command_of(role))


def run(
    source: Annotated[str | None, typer.Argument(metavar="PRESET_OR_FILE", help="What to train.")] = None,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=N.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; the same as --set device=...")] = None,
    run_name: Annotated[str | None, typer.Option("--run", metavar="NAME", help="The run's id; default: new.")] = None,
    run_dir: RunDir = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of --run or --run-dir.")] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="One process, in a fixed order: the same seed gives the same parameters."),
    ] = False,
    offline: Annotated[
        Path | None, typer.Option("--offline", metavar="PATH", help="Learn from an exported replay, without agents.")
    ] = None,
    redis: RedisOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check what was asked for; exit 0 if it can run, 2 if not.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Afterwards play fresh episodes; exit 0 only if they reach the goal.")
    ] = False,
    verify_episodes: Annotated[int, typer.Option(min=1, metavar="N", help="How many --verify plays.")] = 100,
    progress: Annotated[bool, typer.Option(help="Show progress; without, only warnings and the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but the end.")] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Train on this machine: Redis, learner, agents and evaluation, until a limit or Ctrl-C."""
    from surreal.main.launch.starting.forking import ForkServer
    from surreal.main.process.ending.interrupts import Interrupts

    if check and verify:
        raise ConfigError("--check starts nothing that --verify could play; leave one of them out", key="--verify")
    # The log is for the run's folder; the person at the terminal sees progress, and what goes wrong.
    setup_logging(log_level or "info", console_level=log_level or "warning")
    given = {"seed": seed, "device": device, "log_level": log_level, "run.deterministic": deterministic or None}
    extra = [f"{key}={value}" for key, value in given.items() if value is not None]
    asked = (source, (*(overrides or ()), *extra), run_name, run_dir, redis, resume, offline)
    interrupts = Interrupts()
    console = Console(file=cast(IO[str], Output(sys.stdout, interrupts.end)), soft_wrap=True)
    if check:
        from surreal.main.commands.check import check as find_problems
        from surreal.main.launch.prepare import RunOptions

        try:
            say(console, find_problems(RunOptions(*asked)))
        except SurrealError as error:  # as wrong arguments end it
            print_error(error)
            raise typer.Exit(2) from error
        return
    with interrupts.installed(), ForkServer([role.module for role in (LEARNER, AGENT, EVAL)]) as starter:
        # The processes' imports have begun; the launcher's own go on beside them.
        from surreal.main.launch.launcher import Launcher
        from surreal.main.launch.prepare import RunOptions

        options = RunOptions(*asked, is_quiet=quiet, shows_progress=progress)
        try:
            outcome = Launcher(options, console, interrupts, starter).execute()
        except StoppedError:
            ending = interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)
            say(console, f"ended before it began: {ending.reason}")
            raise typer.Exit(ending.exit_code) from None
    for line in outcome.last_words():
        say(console, line)
    exit_code = outcome.ending.exit_code
    if exit_code is ExitCode.FAILED:
        print_error(SurrealError(outcome.ending.reason))
    if verify:
        from surreal.main.commands.verify import verify as play_again

        is_solved, sentence = play_again(outcome, verify_episodes)
        say(console, sentence)
        if not is_solved and exit_code is ExitCode.OK:
            exit_code = ExitCode.FAILED
    raise typer.Exit(exit_code)


def _command_of(role: Role) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(importlib.import_module(role.module).main(context.args))

    return command
