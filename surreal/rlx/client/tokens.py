"""The token that servers may ask for and clients bring: from a file, or from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from surreal.errors import ConfigError
from surreal.utils.secrets import read_secret, secret_of

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
