"""A run for people, in progress or over: `surreal status`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from surreal.cli.options import say
from surreal.plugins.recorded.listing import last_round, read_run
from surreal.run.process.finding import RunOverError
from surreal.run.process.run_folder import newest_checkpoint
from surreal.run.view.live.text import describe_numbers, describe_troubles, starting_phase
from surreal.run.view.run_view import FILES, RunView


def print_status(view: RunView, console: Console) -> None:
    """Print a run for people."""
    state = view.state + (f" ({view.stop_reason})" if view.stop_reason else "")
    console.print(f"{view.run}: {state}", markup=False, highlight=False)
    summary = Table(show_header=False, box=None)
    for name, value in describe_numbers(view, max(0.0, time.time() - view.created) if view.created else 0.0):
        summary.add_row(name, value)
    phase = starting_phase(view) if view.state == "running" else ""
    if phase:
        summary.add_row("now", phase)
    for name, value in describe_troubles(view, without=phase):
        summary.add_row(name, value)
    console.print(summary)
    table = Table("process", "host", "pid", "seen", "version", "env steps", box=None)
    for beat in view.processes:
        seen = f"{max(0.0, beat.age_s):.0f} s ago" + ("" if beat.is_alive() else ", dead")
        table.add_row(beat.name, beat.host, str(beat.pid), seen, str(beat.version), f"{beat.global_step:,}")
    console.print(table)


def print_ended(over: RunOverError, console: Console) -> None:
    """Print a run that is over for people."""
    say(console, f"{over.folder.read_run() or over.folder.path.name}: over")
    table = Table(show_header=False, box=None)
    folder = over.folder.path  # it may lack any of its files
    run, last = read_run(folder), last_round(folder) or {}
    returns = {"best return": run.best_return, "last return": last.get("mean_return")}
    updates = newest_checkpoint(folder)
    rows = [
        ("ended", f"{run.status}{f': {run.reason}' if run.reason else ''}"),
        ("time", f"{run.time_s:.0f} s"),
        ("env steps", f"{run.env_steps:,}"),
        ("updates", f"{run.updates:,}"),
        *((name, f"{value:.1f}") for name, value in returns.items() if isinstance(value, int | float)),
        ("checkpoint", f"after {updates:,} updates" if updates else "none"),
        ("folder", f"{folder}: {', '.join(name for name in FILES if (folder / name).exists())}"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    console.print(table, markup=False, highlight=False)


def ended_to_json(folder: Path) -> dict[str, Any]:
    """Return plain data, with the names that `RunView.to_json` uses where they mean the same."""
    run = read_run(folder)
    plain = run.to_json() | {"title": run.name, "state": "over", "stop_reason": run.reason or None, "processes": []}
    return {name: plain[name] for name in plain if name not in ("is_in_redis", "name", "reason")}
