"""Secrets from files or from the environment: an argument would be shown by `ps`, and a log is read by many."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path

#: The address of the Redis that the secrets below are meant for.
ADDRESS_VARIABLE = "SURREAL_REDIS"
#: The user that a process comes to Redis as.
USER_VARIABLE = "SURREAL_REDIS_USER"
#: Folder with a file for each of Redis' users, of the user's name, that holds its password.
SECRETS_VARIABLE = "SURREAL_REDIS_SECRETS"
#: What a variable's name ends with that names a file instead.
FILE = "_FILE"


def read_secret(path: Path, source: str) -> str:
    """Read a file that holds a secret, without the line's end.

    Args:
        path: of the file.
        source: what names it, for messages.

    Raises:
        ValueError: it cannot be read, or is empty: nobody is let in by mistake.
    """
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{source}: {path} cannot be read: {why}") from None
    if not secret:
        raise ValueError(f"{source}: {path} is empty; the secret belongs there")
    return secret


def secret_of(environ: Mapping[str, str], variable: str) -> str | None:
    """Give a secret: from the file that `VARIABLE_FILE` names, else from the variable itself; None without either.

    Raises:
        ValueError: the file cannot be read, or is empty.
    """
    if path := environ.get(variable + FILE):
        return read_secret(Path(path), f"${variable}{FILE}")
    return environ.get(variable) or None


def take_user(user: str, environ: MutableMapping[str, str]) -> None:
    """Come to Redis as a user from now on, where a folder of secrets is given; else the environment says as whom.

    Args:
        user: as in the table of `surreal.distributed.connection.access.rights`.
        environ: variables of this process; its children inherit them, and each takes its own user.
    """
    if environ.get(SECRETS_VARIABLE):
        environ[USER_VARIABLE] = user
