"""`surreal runs`: list runs, compare them, delete them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surreal.base.errors import ConfigError
from surreal.cli.options import say
from surreal.run.process.arguments import option

if TYPE_CHECKING:
    from surreal.plugins.recorded.listing import ListedRun
    from surreal.plugins.runs.choosing import Comparison

runs_app = typer.Typer(name="runs", help="List, compare and delete runs in folders and in Redis.")

Folders = Annotated[list[Path] | None, option("DIR", "Folder of runs or of a sweep; may be repeated.", "--folder")]
RedisOption = Annotated[
    str | None,
    option(
        "URL", "Also list the runs that this Redis knows; default: $SURREAL_REDIS.", "--redis", envvar="SURREAL_REDIS"
    ),
]
Statuses = Annotated[list[str] | None, option("STATUS", "Only runs with this status; may be repeated.", "--status")]
AsJson = Annotated[bool, option(None, "Print JSON.", "--json")]
Yes = Annotated[bool, option(None, "Do not ask for confirmation.", "--yes", "-y")]
#: Default folder of sweeps.
_SWEEPS_FOLDER = Path("sweeps")
#: Width of a terminal that shows all columns.
_WIDE = 100
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Runs, by folder or id; patterns in quotes.")]


@runs_app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    folders: Folders = None,
    redis: RedisOption = None,
    names: Annotated[
        list[str] | None, option("PATTERN", "Only runs or configurations with this name.", "--name")
    ] = None,
    statuses: Statuses = None,
    sort: Annotated[str, option("KEY", "started, name, status, return, steps or time.")] = "started",
    reverse: Annotated[bool, option(None, "Reverse the order.", "--reverse", "-r")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs below `runs`."""
    if context.invoked_subcommand is not None:
        return
    from surreal.plugins.recorded.listing import STATUSES
    from surreal.plugins.runs.choosing import SortKey, in_order, matching
    from surreal.run.process.run_folder import RUNS_FOLDER

    keys: Any = get_args(SortKey)
    found = matching(_all(folders, redis), names or [], _checked("--status", statuses or (), STATUSES))
    found = in_order(found, _checked("--sort", [sort], keys)[0], is_reversed=reverse)
    if as_json:
        typer.echo(json.dumps([run.to_json() for run in found], indent=2))
    elif found:
        _print_runs(found)
    else:
        sweeps = [] if folders else sorted(_SWEEPS_FOLDER.glob(f"*/{RUNS_FOLDER.name}"))
        hint = f"; those of a sweep: surreal runs --folder {sweeps[-1].parent}" if sweeps else ""
        typer.echo(f"no run{hint}")


@runs_app.command()
def compare(names: Names, folders: Folders = None, redis: RedisOption = None, as_json: AsJson = False) -> None:
    """Show settings that differ, and results, side by side."""
    from surreal.plugins.runs.choosing import choose
    from surreal.plugins.runs.choosing import compare as put_side_by_side

    found = put_side_by_side(choose(_all(folders, redis, names), names), redis)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print_comparison(found)


@runs_app.command()
def delete(
    names: Names,
    folders: Folders = None,
    redis: RedisOption = None,
    keep_best: Annotated[int, option("N", "Keep the N runs with the best returns.", min=0)] = 0,
    yes: Yes = False,
) -> None:
    """Delete runs that are over: their folders, and their keys in Redis."""
    from surreal.plugins.runs.choosing import best_of, choose

    found = choose(_all(folders, redis, names), names)
    kept = best_of(found, keep_best)
    _delete([run for run in found if run not in kept], redis, yes)


@runs_app.command()
def clean(folders: Folders = None, redis: RedisOption = None, statuses: Statuses = None, yes: Yes = False) -> None:
    """Delete runs that failed, were interrupted or were killed; interrupted runs could be resumed."""
    from surreal.plugins.recorded.listing import STATUSES
    from surreal.plugins.runs.choosing import matching

    wanted = _checked("--status", statuses or (), STATUSES) or ["failed", "interrupted", "killed", "over"]
    _delete(matching(_all(folders, redis), [], wanted), redis, yes)


def _all(folders: Sequence[Path] | None, redis: str | None, names: Sequence[str] = ()) -> list[ListedRun]:
    """List all runs, including those that are named by a path."""
    from surreal.plugins.recorded.listing import list_runs, runs_in_redis
    from surreal.run.process.finding import is_run_folder
    from surreal.run.process.run_folder import RUNS_FOLDER

    for folder in folders or ():
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", key="--folder")
    paths = [Path(name) for name in names if is_run_folder(Path(name))]
    return list_runs([*(folders or [RUNS_FOLDER]), *paths], [] if redis is None else runs_in_redis(redis))


def _delete(found: Sequence[ListedRun], redis: str | None, is_sure: bool) -> None:
    from surreal.plugins.runs.deleting import delete as remove
    from surreal.plugins.runs.deleting import require_dead

    if not found:
        typer.echo("no run to delete")
        return
    require_dead(found)
    _print_runs(found)
    count = f"{len(found)} run{'s' if len(found) > 1 else ''}"
    if not is_sure:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"nothing was deleted: there is no terminal to confirm on; --yes deletes {count}", key="--yes"
            )
        if not typer.confirm(f"delete {count} for good?"):
            raise typer.Exit(1)
    for run in found:
        remove(run, redis)
    typer.echo(f"deleted {count}")


def _checked(option: str, words: Sequence[str], known: Sequence[str]) -> list[Any]:
    for word in words:
        if word not in known:
            raise ConfigError(f"{option} is {word!r}; it must be one of {', '.join(known)}", key=option)
    return list(words)


def _print_runs(runs: Sequence[ListedRun]) -> None:
    several = len({run.folder.parent for run in runs if run.folder is not None}) > 1
    console = Console()
    columns: dict[str, Callable[[ListedRun], str]] = {
        "run": lambda run: run.label if not several or run.folder is None else os.path.relpath(run.folder),
        "configuration": lambda run: run.name or "-",
        "seed": lambda run: "-" if run.seed is None else str(run.seed),
        "status": lambda run: run.status,
        "started": lambda run: time.strftime("%m-%d %H:%M", time.localtime(run.started)) if run.started else "-",
        "time": lambda run: _duration(run.time_s),
        "env steps": lambda run: f"{run.env_steps:,}",
        "return": lambda run: "-" if run.best_return is None else f"{run.best_return:.4g}",
        # For a finished run, the kind of end is enough.
        "why": lambda run: (run.reason.partition(":")[0] if run.status == "finished" else run.reason) or "-",
    }
    is_wide = console.width >= _WIDE
    if not is_wide:
        for title in ("configuration", "seed", "started", "why"):
            del columns[title]
    table = Table(box=None, pad_edge=False)
    for title in columns:
        is_number = title in ("seed", "time", "env steps", "return")
        folds = title in ("run", "why")
        table.add_column(title, justify="right" if is_number else "left", no_wrap=not folds, overflow="fold")
    for run in runs:
        table.add_row(*(Text(show(run)) for show in columns.values()))
    console.print(table)
    for run in () if is_wide else runs:
        if run.reason and run.status in ("failed", "unreadable"):
            say(console, f"{run.label}: {run.reason}")


def _print_comparison(found: Comparison) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for run in found.runs:
        table.add_column(Text(run.label), overflow="fold")
    for rows in (found.settings, found.results):
        for name, values in rows.items():
            table.add_row(Text(name), *(Text(_shown(value)) for value in values))
        table.add_section()
    console = Console()
    console.print(table)
    if not found.settings:
        say(console, "all settings are the same")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None or value == "" else value if isinstance(value, str) else json.dumps(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
