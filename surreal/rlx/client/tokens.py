"""The token that servers may ask for and clients bring: from a file, or from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from surreal.errors import ConfigError

#: Environment variable that holds the server's token: an argument would be shown by `ps`.
TOKEN_VARIABLE = "SURREAL_RLX_TOKEN"  # noqa: S105 - the name of a variable


def find_token(path: str | None, setting: str, *, source: str = "") -> str | None:
    """Read the token; a file that is named must have one, so that no server is open by mistake.

    Args:
        path: of the file; None: the variable is looked at, which may be missing.
        setting: what named the file.
        source: where that stands.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{setting} cannot be read: {error}", key=setting, source=source) from error
    if not token:
        raise ConfigError(f"{setting} {path} is empty", key=setting, source=source)
    return token
