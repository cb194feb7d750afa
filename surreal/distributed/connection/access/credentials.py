"""As whom this process comes to Redis: user, password and certificates, from the environment and from files.

Read by every `RedisClient` for an address that names no user and no password itself. A secret in an argument would be
shown by `ps`, and one in an address ends in files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from surreal.base.system.files import ADDRESS_VARIABLE, FILE, SECRETS_VARIABLE, USER_VARIABLE, read_secret, secret_of

#: With "_FILE": the file that holds it.
PASSWORD_VARIABLE = "SURREAL_REDIS_PASSWORD"  # noqa: S105 - the name of a variable
#: Environment variables with files for TLS, and redis-py's names of them.
TLS_VARIABLES = {
    "SURREAL_REDIS_TLS_CA": "ssl_ca_certs",
    "SURREAL_REDIS_TLS_CERT": "ssl_certfile",
    "SURREAL_REDIS_TLS_KEY": "ssl_keyfile",
}
#: What hides the user and the password from a child process.
WITHOUT_SECRETS = dict.fromkeys((USER_VARIABLE, SECRETS_VARIABLE, PASSWORD_VARIABLE, PASSWORD_VARIABLE + FILE), "")


class Credentials(NamedTuple):
    """What a process shows to a Redis server."""

    username: str | None = None
    password: str | None = None
    tls: Mapping[str, str] = {}  #: options of redis-py's TLS connections


class FoundAddress(str):
    """An address out of a file, which a stranger may have written.

    `RedisClient` sends the user and the password of the environment there only if the user has named the same host.

    Args:
        text: the address.
        given: what the user named instead, with `--redis`, or the address of what led to the file; None: nothing.
    """

    __slots__ = ("_given",)
    _given: str | None

    def __new__(cls, text: str, given: str | None = None) -> FoundAddress:
        """Keep what the user named, also if another found address led here."""
        self = super().__new__(cls, text)
        self._given = given._given if isinstance(given, FoundAddress) else given
        return self

    def named(self, environ: Mapping[str, str]) -> list[str]:
        """Give the addresses that the user named."""
        return (self._given or environ.get(ADDRESS_VARIABLE) or "").split()


def read_credentials(environ: Mapping[str, str], run: str) -> Credentials:
    """Read what the environment says.

    Args:
        environ: variables of this process.
        run: id of the run; its users come before those of all runs.

    Raises:
        ValueError: a file that is named cannot be read, or is empty; with the variable that names it.
    """
    username = environ.get(USER_VARIABLE) or None
    if (folder := environ.get(SECRETS_VARIABLE)) and username is not None:
        found = _file_of(Path(folder), username, run)
        return Credentials(found.name, read_secret(found, f"${SECRETS_VARIABLE}"), _tls(environ))
    return Credentials(username, secret_of(environ, PASSWORD_VARIABLE), _tls(environ))


def _file_of(folder: Path, user: str, run: str) -> Path:
    """The file of a user: of this run, of all runs, or of the one run that there is."""
    for name in (f"{run}.{user}", user):
        if (folder / name).is_file():
            return folder / name
    others = sorted(folder.glob(f"*.{user}"))
    return others[0] if len(others) == 1 else folder / user


def _tls(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable, option in TLS_VARIABLES.items():
        if path := environ.get(variable):
            if not Path(path).is_file():
                raise ValueError(f"${variable} is {path}, which is no file")
            found[option] = path
    return found
