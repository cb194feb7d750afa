"""Find a run and its Redis, for all commands that look at runs; `surreal status`."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from surreal.base.errors import ConfigError, RedisUnavailableError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import is_refused
from surreal.run.process import registry
from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.finding import RunOverError, is_written_to, named_folder, require_folder
from surreal.run.view.listing import open_client
from surreal.run.view.live.describe import describe_numbers, describe_troubles, starting_phase
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView

_TIMEOUT_S = 5.0


def find_run(run: str | None, *, address: str | None, run_dir: Path | None, must_be_known: bool = True) -> RedisClient:
    """Find a run and its Redis: at an address, by its folder, or the newest one below `runs`.

    Args:
        run: its id, the name of its folder below `runs`, or a path to the folder; None: the one of `run_dir`, or the
            newest.
        address: address of its Redis.
        run_dir: its folder.
        must_be_known: false also accepts a named run that is not listed there, because another server lists it.

    Raises:
        ConfigError: there is no such run.
        RunOverError: it has ended.
        RedisUnavailableError: its Redis does not answer.
    """
    given = address or os.environ.get(REDIS_VARIABLE)
    folder = named_folder(run_dir or run) if given is not None else require_folder(run_dir or run)
    address, run = find_address(run, address=given, run_dir=run_dir)
    client = open_client(address, run or "default")
    try:
        client.check_server(timeout_s=_TIMEOUT_S)
    except RedisUnavailableError as error:
        client.close()
        is_gone = error.__cause__ is None or not is_refused(error.__cause__)
        if (
            is_gone and given is None and folder is not None and not is_written_to(folder.path)
        ):  # it was killed with its Redis
            raise RunOverError(folder) from None
        raise
    known = registry.list_runs(client)
    if run is None:
        client.close()
        if not known:
            raise ConfigError(f"Redis at {client.address} knows no run")
        return open_client(address, known[-1].run)
    if must_be_known and run not in [entry.run for entry in known]:
        client.close()
        if folder is not None and not is_written_to(folder.path):
            raise RunOverError(folder)
        names = ", ".join(entry.run for entry in known[-5:])
        raise ConfigError(f"Redis at {client.address} knows no run {run!r}; it knows {names or 'none'}", key="RUN")
    return client


def find_address(run: str | None, *, address: str | None, run_dir: Path | None) -> tuple[str, str | None]:
    """Find the address of a run's Redis, and the run's id if it is known; arguments as in `find_run`.

    Raises:
        ConfigError: there is no such run.
        RunOverError: the run has ended.
    """
    address = address or os.environ.get(REDIS_VARIABLE)
    if address is not None:
        folder = None if run is None and run_dir is None else named_folder(run_dir or run)
        found_run = None if folder is None else folder.read_run()
        return address, run if found_run is None or (run is not None and run_dir is not None) else found_run
    folder = require_folder(run_dir or run)
    found = folder.read_address()
    if found is None:
        raise RunOverError(folder)
    # A name may be that of a folder, whose run may have another id.
    return found[0], run if run is not None and run_dir is not None else found[1]


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
