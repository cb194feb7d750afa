"""The launcher's part of a run's folder: its name, its configuration, where its Redis is, and its result."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surreal.config import Config, to_yaml
from surreal.errors import ConfigError

RUNS_FOLDER = Path("runs")
CONFIG_NAME = "app.yaml"
RESULT_NAME = "result.json"
ADDRESS_NAME = "redis.address"

_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=")


def new_run_id(name: str) -> str:
    """A run id that no other run has: name, local time, four random digits."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


class RunFolder:
    """A run's folder, from the launcher's side.

    Args:
        path: the folder; made by `create`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def config_path(self) -> Path:
        return self.path / CONFIG_NAME

    def create(self, config: Config, *, resume: bool) -> None:
        """Make the folder and write the configuration into it.

        Raises:
            ConfigError: the folder holds a run already, and `resume` is false.
        """
        if self.config_path.exists() and not resume:
            raise ConfigError(
                f"{self.path} holds a run already; "
                "--resume goes on with it, --run NAME or --run-dir DIR begins another",
                key="--run-dir",
            )
        self.path.mkdir(parents=True, exist_ok=True)
        text = to_yaml(config)
        _write(self.config_path, text, is_secret=bool(_PASSWORD.search(text)))
        (self.path / RESULT_NAME).unlink(missing_ok=True)

    def write_address(self, address: str, run: str) -> None:
        """Say where the run's Redis is, and under which id; for this user only, since it may hold a password."""
        _write(self.path / ADDRESS_NAME, f"{address}\n{run}\n", is_secret=True)

    def remove_address(self) -> None:
        """The run's Redis is gone, or none of our business any more."""
        (self.path / ADDRESS_NAME).unlink(missing_ok=True)

    def read_address(self) -> tuple[str, str] | None:
        """Where the run's Redis is and the run's id, None if the run is over."""
        try:
            lines = (self.path / ADDRESS_NAME).read_text().split()
        except OSError:
            return None
        return (lines[0], lines[1]) if len(lines) == 2 else None

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write how the run ended."""
        _write(self.path / RESULT_NAME, json.dumps(result, indent=2) + "\n", is_secret=False)


def newest_running(folder: Path = RUNS_FOLDER) -> RunFolder | None:
    """The newest run below a folder whose Redis address is there, None if no run is."""
    try:
        found = [path.parent for path in folder.glob(f"*/{ADDRESS_NAME}")]
        newest = max(found, key=lambda path: (path / ADDRESS_NAME).stat().st_mtime, default=None)
    except OSError:
        return None
    return None if newest is None else RunFolder(newest)


def newest_checkpoint(run_dir: Path) -> int:
    """Updates of the learner's newest checkpoint, by its name; 0 if there is none."""
    names = [path.stem for path in (run_dir / "checkpoints").glob("*.safetensors")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def _write(path: Path, text: str, *, is_secret: bool) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if is_secret else 0o666)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
