"""`surreal chaos`: disturbs a run, and checks the invariants that must hold."""

from __future__ import annotations

import shlex
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.options import Overrides, Panel, RunDir, presets_and_files, say, stdout_console
from surreal.run.process.arguments import option


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.CLUSTERS)(chaos)


def chaos(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|PRESET_OR_FILE",
            help="Run to disturb (default: newest), or a preset or file to start for the test.",
            autocompletion=presets_and_files,
        ),
    ] = None,
    for_s: Annotated[float, option("S", "Duration of the disturbances.", "--for", min=0.0)] = 60.0,
    kill: Annotated[
        list[str] | None, option("ROLES", "Kill processes: learner, ps, agent, rlx-server, eval, or all.")
    ] = None,
    pause: Annotated[list[str] | None, option("ROLES", "Pause processes for some seconds.")] = None,
    cut: Annotated[bool, option(None, "Break all connections to Redis, for some seconds.", "--cut")] = False,
    redis: Annotated[
        list[str] | None,
        option(
            "HOW",
            "restart: kill and start Redis; flush: empty it; full: fill it; shrink: lower its memory limit; "
            "failover: a replica takes its place.",
        ),
    ] = None,
    machine: Annotated[
        list[str] | None,
        option("HOW", "clock: jump a minute ahead, and back; disk: slow syncs; memory: processes get none."),
    ] = None,
    seed: Annotated[int, option(None, "Seed of times, kinds and targets.", min=0)] = 0,
    every: Annotated[float, option("S", "Mean time between two disturbances.", min=0.1)] = 6.0,
    hold: Annotated[float, option("S", "Maximum duration of one disturbance.", min=0.1)] = 3.0,
    within: Annotated[float, option("S", "Maximum time to recover from a disturbance.", min=1.0)] = 60.0,
    most: Annotated[int | None, option("N", "End after N disturbances, before --for.", min=1)] = None,
    report: Annotated[Path | None, option("FILE", "Write the report: .md or .json.")] = None,
    append: Annotated[Path | None, option("FILE", "Append a row to a table of tests: .csv.")] = None,
    overrides: Overrides = None,
    address: Annotated[str | None, option("URL", "Redis of a run whose folder is elsewhere.", "--address")] = None,
    run_dir: RunDir = None,
) -> None:
    """Disturb a run at random, and check that nothing is lost or doubled and learning continues; exit 0 if so.

    Without --kill, --pause, --cut, --redis and --machine, it kills, pauses, cuts and restarts. Ctrl-C heals the run and
    ends the test.
    """
    from surreal.base.system.logs import setup_logging
    from surreal.plugins.chaos.command import Call, disturb
    from surreal.plugins.chaos.plan import ChaosOptions, read_kinds
    from surreal.plugins.chaos.report import check_path
    from surreal.run.process.interrupts import set_at_signals

    if report is not None:
        check_path(report)
    if append is not None:
        check_path(append, "--append", (".csv",))
    kinds, kill_roles, pause_roles = read_kinds(kill or [], pause or [], redis or [], machine or [], cuts=cut)
    is_default = not (kill or pause or redis or machine or cut)
    options = ChaosOptions(kinds, kill_roles, pause_roles, for_s, most, every, hold, within, seed, is_default)
    setup_logging("warning")
    stop = threading.Event()
    console = stdout_console(lambda _: stop.set(), no_color=True)
    signals = set_at_signals(stop, is_abortable=True)
    words = shlex.join(["surreal", *sys.argv[1:]])
    show = partial(say, console)
    found = disturb(Call(target, options, show, stop, signals, overrides or (), address, run_dir, words))
    for line in found.lines():
        show(line)
    if report is not None:
        found.write(report)
        show(f"report in {report}")
    if append is not None:
        found.append(append)
        show(f"a row was added to {append}")
    raise typer.Exit(found.exit_code)
