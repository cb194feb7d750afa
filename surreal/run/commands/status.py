"""`surreal status`: a run in progress, for people."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from surreal.distributed.connection.client import RedisClient
from surreal.run.process import registry
from surreal.run.view.live.describe import describe_numbers, describe_troubles, starting_phase
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView


def run_status(client: RedisClient) -> RunView:
    """Read the state of the client's run."""
    view = RunReader(client, has_counts=True, is_patient=True).read()
    entry = next((entry for entry in registry.list_runs(client) if entry.run == client.run), None)
    return view if entry is None else replace(view, title=entry.title, created=entry.created)


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
    table = Table(box=None)
    for title in ("process", "host", "pid", "seen", "version", "env steps"):
        table.add_column(title)
    for beat in view.processes:
        seen = f"{max(0.0, beat.age_s):.0f} s ago" + ("" if beat.is_alive() else ", dead")
        table.add_row(beat.name, beat.host, str(beat.pid), seen, str(beat.version), f"{beat.global_step:,}")
    console.print(table)
