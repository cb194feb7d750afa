"""`surreal status`, `top` and `stop` for a run in progress; `surreal redis`: a server for runs on several machines."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from surreal.base.errors import ConfigError
from surreal.cli.options import NoColor, Panel, RedisOption, RunDir, RunName, say, stdout_console
from surreal.run.process.arguments import SHOWN_BY_PS

if TYPE_CHECKING:
    from surreal.run.process.finding import RunOverError


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(rich_help_panel=Panel.CLUSTERS)(redis)
    app.command(rich_help_panel=Panel.LOOK)(status)
    app.command(rich_help_panel=Panel.TRAIN)(stop)
    app.command(rich_help_panel=Panel.LOOK)(top)


def redis(
    context: typer.Context,
    bind: Annotated[
        str, typer.Option(help="Address to listen on; other than 127.0.0.1 needs a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 6379,
    password: Annotated[
        str | None,
        typer.Option(envvar="SURREAL_REDIS_PASSWORD", help="Password; better --password-file, or the variable."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar="SURREAL_REDIS_PASSWORD_FILE", help="File with the password.")
    ] = None,
    acl: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="ACL file with a user for each kind of process; missing users are added."),
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="NAME", help="Users of --acl for this run alone; may be repeated."),
    ] = None,
    secrets: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for passwords and certificates; missing ones are made.")
    ] = Path("secrets"),
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, with generated certificates or the named ones.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key, if it is in another file.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authority that signs clients' certificates.")
    ] = None,
    client_certificates: Annotated[
        bool, typer.Option("--client-certificates", help="Clients must show a certificate.")
    ] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Only make the files of --acl and --tls.")] = False,
    maxmemory: Annotated[str, typer.Option(metavar="SIZE", help='Bound of its memory, such as "2gb".')] = "1gb",
    appendonly: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the data in this folder, so that they survive a restart.")
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, metavar="S", help="Longest wait for clients to leave, after SIGTERM.")
    ] = 0.0,
) -> None:
    """Serve Redis for the processes of other machines, until Ctrl-C."""
    from surreal.run.commands.redis_server import AccessOptions, address_for_others, prepare_access, serve

    console = Console(soft_wrap=True)
    source = context.get_parameter_source("password")
    if source is not None and source.name == "COMMANDLINE":
        typer.echo(f"warning: {SHOWN_BY_PS}", err=True)
    options = AccessOptions(
        password,
        password_file,
        acl,
        secrets,
        tuple(runs or ()),
        tls,
        tls_cert,
        tls_key,
        tls_ca,
        client_certificates,
    )
    access = prepare_access(options, bind, lambda sentence: say(console, sentence))
    if no_start:
        return

    def on_ready(server: Any) -> None:
        say(console, f"Redis at {address_for_others(server.address, bind)}, pid {server.pid}; Ctrl-C ends it")

    serve(
        bind=bind,
        port=port,
        access=access,
        maxmemory=maxmemory,
        appendonly=appendonly,
        drain_s=drain,
        on_ready=on_ready,
    )


def status(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a run: in progress, from any machine that reaches its Redis, or over, from its folder."""
    from surreal.run.commands.status import print_status, run_status
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.view.outcome import ended_to_json

    try:
        with find_run(run_name, address=redis, run_dir=run_dir) as client:
            found = run_status(client)
    except RunOverError as over:
        if as_json:
            typer.echo(json.dumps(ended_to_json(over.folder.path)))
        else:
            _print_ended(over, Console(soft_wrap=True))
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
        typer.echo(f"removed run {client.run}: {registry.delete_run(client)} keys")


def top(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit.")] = False,
    no_color: NoColor = False,
) -> None:
    """Watch a run, from any machine that reaches its Redis; q leaves, s asks the run to stop."""
    from surreal.run.process.ending import ExitCode
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.process.interrupts import set_at_signals
    from surreal.run.view.live.top import Top

    stop = threading.Event()
    closed: list[str] = []

    def on_failure(reason: str) -> None:
        closed.append(reason)
        stop.set()

    console = stdout_console(on_failure, no_color=no_color)
    try:
        found = find_run(run_name, address=redis, run_dir=run_dir)
    except RunOverError as over:
        _print_ended(over, console)
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


def _print_ended(over: RunOverError, console: Console) -> None:
    from rich.table import Table

    from surreal.run.view.outcome import describe_ended

    say(console, f"{over.folder.read_run() or over.folder.path.name}: over")
    table = Table(show_header=False, box=None)
    for name, value in describe_ended(over.folder.path):
        table.add_row(name, value)
    console.print(table, markup=False, highlight=False)
