"""Options of a client: where the server is, and which token it gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from surreal.base.errors import ConfigError
from surreal.base.system.files import read_secret, secret_of

#: Environment variable that holds the server's token, or with "_FILE" names a file with it.
TOKEN_VARIABLE = "SURREAL_RLX_TOKEN"  # noqa: S105 - the name of a variable


def find_token(path: str | None, setting: str, *, source: str = "") -> str | None:
    """Read the token; a file that is named must have one, so that no server is open by mistake."""
    try:
        return secret_of(os.environ, TOKEN_VARIABLE) if path is None else read_secret(Path(path), setting)
    except ValueError as error:
        raise ConfigError(str(error), key=setting, source=source) from error


class Options:
    """Settings in sections. Names may have hyphens instead of underscores, and the reverse.

        steps = options.get("environment/steps", 100)

    Args:
        content: sections and settings.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    @classmethod
    def read(cls, path: Path | None, default: Path | None = None) -> Options:
        """Read a file, or `default` if it exists; raises `ConfigError` if that cannot be read or is anything else."""
        if path is None:
            if default is None or not default.is_file():
                return cls({})
            path = default
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read: {error}", source=str(path)) from error
        if content is not None and not isinstance(content, dict):
            raise ConfigError(f"{path} holds no settings, but {type(content).__name__}", source=str(path))
        return cls(content or {})

    def get(self, path: str, default: Any = None) -> Any:
        """Find a setting.

        Args:
            path: names of its sections and its own, with slashes between them.
            default: returned where it, or a section on the way to it, does not exist, or is None.
        """
        found: Any = self._content
        for name in path.split("/"):
            found = _find(found, name) if isinstance(found, dict) else None
        return default if found is None else found

    def check_section(self, name: str) -> None:
        section = self.get(name, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{name} is {section!r}; it must hold settings", key=name)


def _find(section: Mapping[Any, Any], name: str) -> Any:
    if name in section:
        return section[name]
    wanted = name.replace("-", "_")
    return next((value for key, value in section.items() if str(key).replace("-", "_") == wanted), None)
