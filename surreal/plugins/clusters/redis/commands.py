"""`surreal redis`: a server for runs on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from surreal.cli.options import Panel, say, with_fields
from surreal.plugins.clusters.redis.options import AccessOptions
from surreal.run.process.arguments import SHOWN_BY_PS


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(rich_help_panel=Panel.CLUSTERS)(redis)


@with_fields
def redis(
    context: typer.Context,
    options: AccessOptions,
    bind: Annotated[
        str, typer.Option(help="Address to listen on; other than 127.0.0.1 needs a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 6379,
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
    from surreal.plugins.clusters.redis.server import address_for_others, prepare_access, serve

    console = Console(soft_wrap=True)
    source = context.get_parameter_source("password")
    if source is not None and source.name == "COMMANDLINE":
        typer.echo(f"warning: {SHOWN_BY_PS}", err=True)
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
