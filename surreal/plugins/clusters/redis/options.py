"""Options for access to a Redis server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from surreal.run.process.arguments import option


@dataclass(frozen=True)
class AccessOptions:
    """Options for access to the server."""

    password: Annotated[
        str | None,
        option(None, "Better --password-file; default: $SURREAL_REDIS_PASSWORD.", envvar="SURREAL_REDIS_PASSWORD"),
    ] = None
    password_file: Annotated[
        Path | None,
        option(
            "FILE",
            "File with the password, made if missing; default: $SURREAL_REDIS_PASSWORD_FILE.",
            envvar="SURREAL_REDIS_PASSWORD_FILE",
        ),
    ] = None
    acl_file: Annotated[
        Path | None, option("FILE", "ACL file with a user for each kind of process; missing users are added.", "--acl")
    ] = None
    runs: Annotated[
        list[str] | None, option("NAME", "Users of --acl for this run alone; may be repeated.", "--run")
    ] = None
    secrets: Annotated[Path, option("DIR", "Folder for passwords and certificates; missing ones are made.")] = Path(
        "secrets"
    )
    uses_tls: Annotated[bool, option(None, "Encrypt, with generated certificates or the named ones.", "--tls")] = False
    certificate: Annotated[Path | None, option("FILE", "Certificate chain (PEM).", "--tls-cert")] = None
    key: Annotated[Path | None, option("FILE", "Private key, if it is in another file.", "--tls-key")] = None
    authority: Annotated[Path | None, option("FILE", "Authority that signs clients' certificates.", "--tls-ca")] = None
    needs_clients: Annotated[bool, option(None, "Clients must show a certificate.", "--client-certificates")] = False
