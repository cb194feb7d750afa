"""Options for access to a Redis server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class AccessOptions:
    """Options for access to the server."""

    password: Annotated[
        str | None,
        typer.Option(envvar="SURREAL_REDIS_PASSWORD", help="Better --password-file; default: $SURREAL_REDIS_PASSWORD."),
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="SURREAL_REDIS_PASSWORD_FILE",
            help="File with the password, made if missing; default: $SURREAL_REDIS_PASSWORD_FILE.",
        ),
    ] = None
    acl_file: Annotated[
        Path | None,
        typer.Option(
            "--acl", metavar="FILE", help="ACL file with a user for each kind of process; missing users are added."
        ),
    ] = None
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="NAME", help="Users of --acl for this run alone; may be repeated."),
    ] = None
    secrets: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for passwords and certificates; missing ones are made.")
    ] = Path("secrets")
    uses_tls: Annotated[bool, typer.Option("--tls", help="Encrypt, with generated certificates or the named ones.")] = (
        False
    )
    certificate: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM).")] = (
        None
    )
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key, if it is in another file.")
    ] = None
    authority: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="Authority that signs clients' certificates.")
    ] = None
    needs_clients: Annotated[bool, typer.Option("--client-certificates", help="Clients must show a certificate.")] = (
        False
    )
