"""What servers may ask of clients: a token and a certificate, from files or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from surreal.base.errors import ConfigError
from surreal.base.system.secrets import read_secret, secret_of

#: Environment variable that holds the server's token, or with "_FILE" names a file with it.
TOKEN_VARIABLE = "SURREAL_RLX_TOKEN"  # noqa: S105 - the name of a variable


def find_token(path: str | None, setting: str, *, source: str = "") -> str | None:
    """Read the token; a file that is named must have one, so that no server is open by mistake.

    Args:
        path: of the file; None: the variables are looked at, which may be missing.
        setting: what named the file.
        source: where that stands.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    try:
        if path is None:
            return secret_of(os.environ, TOKEN_VARIABLE)
        return read_secret(Path(path), setting)
    except ValueError as error:
        raise ConfigError(str(error), key=setting, source=source) from error


class ClientTls(NamedTuple):
    """Files of a client, PEM; None: as far as this machine knows, none, and in the certificate's file."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether any of them is named."""
        return any(path is not None for path in self)

    def completed(self, environ: Mapping[str, str]) -> ClientTls:
        """The same, and what the environment names where nothing is named here."""
        found = (environ.get(f"SURREAL_RLX_TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
        return ClientTls(*(path or other for path, other in zip(self, found, strict=True)))
