"""Access to a redis-server: a password, or users and certificates, and the users' ACL file for `surreal redis --acl`.

The ACL file is made from the table of rights, and holds digests of passwords. The passwords are in a folder next to it,
one file each, for the operator to distribute.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from surreal.base.system.files import read_secret, write_whole
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import kind_pattern
from surreal.distributed.connection.rights import ADMINISTRATOR, CHANNELS, USERS, User

logger = logging.getLogger(__name__)

#: Part of the error of a redis-server without TLS.
NO_TLS = "tls-port"


@dataclass(frozen=True)
class ServerTls:
    """Files for TLS, all of them PEM."""

    certificate: Path  #: the server's certificate, with its chain
    key: Path  #: its private key
    authority: Path | None = None  #: certificates that server and clients trust; None: those of their machines
    needs_clients: bool = False  #: whether clients must show a certificate
    client_certificate: Path | None = None  #: for clients of this machine; None: they have none
    client_key: Path | None = None


@dataclass(frozen=True)
class ServerAccess:
    """The credentials that a server requires."""

    password: str | None = None  #: password of `username`; None: there is none, or it is not known here
    username: str | None = None  #: with an ACL file, the user of the password
    acl_file: Path | None = None  #: file with users; None: there is only the default user
    tls: ServerTls | None = None  #: None: connections are not encrypted

    @property
    def is_closed(self) -> bool:
        return bool(self.password or self.acl_file)

    def settings(self, port: int) -> dict[str, str | int | Path]:
        """Return settings of redis.conf; port 0: only the socket."""
        found: dict[str, str | int | Path] = {"port": port}
        if self.acl_file is not None:
            found["aclfile"] = self.acl_file.resolve()
        elif self.password:
            found["requirepass"] = self.password
        if self.tls is not None:
            found |= {
                "port": 0,
                "tls-port": port,
                "tls-cert-file": self.tls.certificate.resolve(),
                "tls-key-file": self.tls.key.resolve(),
                "tls-auth-clients": "yes" if self.tls.needs_clients else "no",
            }
            if self.tls.authority is not None:
                found["tls-ca-cert-file"] = self.tls.authority.resolve()
        return found

    def socket_address(self, path: Path) -> str:
        """Return the address of a socket, password included."""
        given = {"username": self.username, "password": self.password} if self.password else {}
        query = urlencode({key: value for key, value in given.items() if value}, quote_via=quote)
        return f"unix://{quote(str(path))}{f'?{query}' if query else ''}"

    def tcp_address(self, host: str, port: int) -> str:
        """Return the address of a port, password included."""
        user = f"{quote(self.username or '', safe='')}:{quote(self.password, safe='')}@" if self.password else ""
        where = f"{user}{f'[{host}]' if ':' in host else host}:{port}"
        if self.tls is None:
            return f"redis://{where}"
        files = {
            "ssl_ca_certs": self.tls.authority,
            "ssl_certfile": self.tls.client_certificate,
            "ssl_keyfile": self.tls.client_key,
        }
        query = urlencode({key: str(path.resolve()) for key, path in files.items() if path is not None})
        return f"rediss://{where}{f'?{query}' if query else ''}"


#: First version with selectors: other commands for other keys of one user.
SELECTORS_VERSION = (7, 0)
_PASSWORD_BYTES = 24
#: Redis 7.0 and 7.2 load the append-only file as the default user, so it needs every right. It is off, so no client can
#: log in as it.
DEFAULT_USER = "user default off resetchannels ~* &* +@all"


def user_name(user: str, run: str | None) -> str:
    """Return the name of a user, and of its password file, for one run or (None) for all runs."""
    return user if run is None or user == ADMINISTRATOR else f"{run}.{user}"


def render_user(user: User, run: str | None, password: str, version: Sequence[int]) -> str:
    """Write a user as a line of an ACL file, with the digest of its password; `run` None: for all runs.

    Before version 7, a user has all of its commands on all of its keys.
    """
    by_kinds: dict[frozenset[str], list[str]] = {}
    for command, kinds in user.commands().items():
        by_kinds.setdefault(kinds - frozenset(CHANNELS), []).append(command)
    pattern = "*" if run is None else run
    channels = [kind for kind in CHANNELS if any(kind in kinds for kinds in user.commands().values())]
    head = [_head(user_name(user.name, run), password), *(f"&{kind_pattern(kind, pattern)}" for kind in channels)]
    without_keys = _allow(by_kinds.pop(frozenset(), []))
    if tuple(version[:2]) < SELECTORS_VERSION:
        keys = sorted({f"~{kind_pattern(kind, pattern)}" for kinds in by_kinds for kind in kinds})
        commands = _allow({command for found in by_kinds.values() for command in found})
        return " ".join([*head, *keys, "-@all", *without_keys, *commands])
    selectors = [
        " ".join([*_allow(commands), *sorted(f"~{kind_pattern(kind, pattern)}" for kind in kinds)])
        for kinds, commands in by_kinds.items()
    ]
    return " ".join([*head, "-@all", *without_keys, *(f"({selector})" for selector in sorted(selectors))])


def write_users(path: Path, folder: Path, runs: Sequence[str], version: Sequence[int]) -> list[str]:
    """Add the missing users to an ACL file, which may be missing, and generate the missing passwords in a folder;
    return the added users' names. Without runs, they are users for all runs; `version` is that of the server that reads
    the file.

    Existing lines stay, with one exception: earlier versions wrote a default user that is off and has no rights. Its
    line is replaced, because Redis 7 loads its append-only file as that user, and would refuse the scripts' writes.
    Raises `ValueError` if a password cannot be read.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = {words[1] for line in lines if (words := line.split())[:1] == ["user"]}
    added: list[str] = []

    def add(name: str, line: str) -> None:
        if name not in known:
            lines.append(line)
            added.append(name)

    for number, line in enumerate(lines):
        words = line.split()
        if words[:3] == ["user", "default", "off"] and words[-1] == "-@all":
            lines[number] = DEFAULT_USER
            added.append("default")
    add("default", DEFAULT_USER)
    admin = _head(ADMINISTRATOR, password_in(folder / ADMINISTRATOR)) if ADMINISTRATOR not in known else ""
    add(ADMINISTRATOR, f"{admin} allchannels allkeys +@all")
    wanted: Sequence[str | None] = runs or (None,)
    for run in wanted:
        for user in USERS:
            name = user_name(user.name, run)
            if name not in known:
                add(name, render_user(user, run, password_in(folder / name), version))
    if added:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n", mode=0o600)
    return added


def warn_of_refusals(client: RedisClient, folder: Path | None) -> None:
    """Warn if Redis refused a part of the append-only file in this folder, which it wrote itself."""
    statistics: Any = {} if folder is None else client.redis.info("errorstats")
    if refused := statistics.get("errorstat_NOPERM", {}).get("count", 0):
        logger.warning(
            "redis-server refused %d commands while it loaded %s, and those data are lost: its default user lacks "
            "rights; with users, the ACL file must have the line `%s`",
            refused,
            folder,
            DEFAULT_USER,
        )


def _head(name: str, password: str) -> str:
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {name} on #{digest} resetchannels"


def _allow(commands: Sequence[str] | set[str]) -> list[str]:
    return [f"+{command}" for command in sorted(commands)]


def password_in(path: Path, option: str = "--secrets") -> str:
    """Return the password in a file; a missing file gets a new one, which only its owner can read."""
    if path.exists():
        return read_secret(path, option)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    write_whole(path, f"{password}\n", mode=0o600)
    return password
