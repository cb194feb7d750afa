"""Redis' users as a file: what `surreal redis --acl` writes, from the table of rights.

The file holds digests of passwords. The passwords themselves lie beside it, a file each, for whoever distributes them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from surreal.base.system.files import read_secret, write_whole
from surreal.distributed.connection.access.rights import ADMINISTRATOR, CHANNELS, USERS, User
from surreal.distributed.connection.keys import kind_pattern

#: From here on a user can have selectors: other commands for other keys.
SELECTORS_VERSION = (7, 0)
_PASSWORD_BYTES = 24
#: Redis 7.0 and 7.2 load the append-only file as the default user, so this user needs every right. No client can log in
#: as a user that is off.
DEFAULT_USER = "user default off resetchannels ~* &* +@all"


def user_name(user: str, run: str | None) -> str:
    """Name of a user that may see one run, or (None) all of them; that of the file with its password, too."""
    return user if run is None or user == ADMINISTRATOR else f"{run}.{user}"


def render_user(user: User, run: str | None, password: str, version: Sequence[int]) -> str:
    """Write a user as a line of an ACL file.

    Args:
        user: of the table.
        run: the only one that it may see; None: all.
        password: in clear; its digest is written.
        version: of the server. Before 7, a user has all of its commands on all of its keys.
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
    """Write the users that an ACL file lacks, and the passwords that a folder lacks; what is there stays.

    The one exception is a default user that is off and has no rights, as earlier versions wrote it: its line is
    replaced, because Redis 7 refuses what scripts wrote when it loads its append-only file as that user.

    Args:
        path: of the ACL file, made if there is none.
        folder: of the passwords: those that are there are used, others are generated.
        runs: users for each of these runs; none: users for all runs.
        version: of the server that will read the file.

    Returns:
        Names of the users whose lines were written.

    Raises:
        ValueError: a password cannot be read.
        OSError: a file cannot be written.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = {words[1] for line in lines if (words := line.split())[:1] == ["user"]}
    added: list[str] = []

    def add(name: str, line: str) -> None:
        if name not in known:
            lines.append(line)
            added.append(name)

    for number, line in enumerate(lines):
        if _is_without_rights(line):
            lines[number] = DEFAULT_USER
            added.append("default")
    add("default", DEFAULT_USER)
    admin = _head(ADMINISTRATOR, _password(folder / ADMINISTRATOR)) if ADMINISTRATOR not in known else ""
    add(ADMINISTRATOR, f"{admin} allchannels allkeys +@all")
    wanted: Sequence[str | None] = runs or (None,)
    for run in wanted:
        for user in USERS:
            name = user_name(user.name, run)
            if name not in known:
                add(name, render_user(user, run, _password(folder / name), version))
    if added:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n", mode=0o600)
    return added


def _is_without_rights(line: str) -> bool:
    words = line.split()
    return words[:3] == ["user", "default", "off"] and words[-1] == "-@all"


def _head(name: str, password: str) -> str:
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {name} on #{digest} resetchannels"


def _allow(commands: Sequence[str] | set[str]) -> list[str]:
    return [f"+{command}" for command in sorted(commands)]


def _password(path: Path) -> str:
    """The password in a file; a new one where there is none."""
    if path.exists():
        return read_secret(path, "--secrets")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    write_whole(path, f"{password}\n", mode=0o600)
    return password
