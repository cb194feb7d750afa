"""Policies of a release by the names of their presets, as in `surreal.load("cartpole-ppo")`.

A folder, or an https address, has them as NAME.safetensors, next to `index.json` with their digests:

    {"version": 1, "policies": {"cartpole-ppo": {"sha256": "9f86d081...", "mean_return": 500.0, ...}, ...}}

`make policies` writes both. A file is read whole and compared with its digest before it is parsed. Parsing it executes
no code.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import IO, Annotated, Any, Literal
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import BaseModel, Field, ValidationError

import surreal
from surreal.base.checkpoint import Checkpoint
from surreal.base.checkpoint.format import decode_checkpoint
from surreal.base.errors import CheckpointError, ConfigError
from surreal.config.problems import nearest
from surreal.run.process.run_folder import RUN_NAME, RUNS_FOLDER

#: Folder or https address, unless a caller names one; without both, the policies of the installation.
VARIABLE = "SURREAL_POLICIES"
INDEX_NAME = "index.json"
#: Largest policy, and largest index, bytes.
MAX_BYTES = 1_000_000
_TIMEOUT_S = 30.0


class PolicyEntry(BaseModel):
    """A policy in the index."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    mean_return: float  #: over fresh episodes
    standard_error: float
    episodes: int
    env_steps: int  #: of the run that it comes from
    seed: int


class PolicyIndex(BaseModel):
    """The content of `index.json`."""

    version: Literal[1] = 1
    policies: dict[Annotated[str, Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")], PolicyEntry]


def read_pretrained(name: str, place: str | None = None) -> Checkpoint:
    """Read a policy and verify its digest.

    Args:
        name: name of a preset.
        place: folder or https address; None is that of `SURREAL_POLICIES`, otherwise the installation's.

    Returns:
        The checkpoint, whose `path` is the name.

    Raises:
        CheckpointError: the index or the file is missing, too large, damaged, or cannot be reached.
        ConfigError: the place has no such policy, or is neither a folder nor an https address.
    """
    place = place or os.environ.get(VARIABLE) or str(installed_folder())
    known = read_index(place).policies
    if name not in known:
        similar = nearest(name, [*known, *(path.parent.name for path in RUNS_FOLDER.glob(f"*/{RUN_NAME}"))])
        advice = f"did you mean {similar}?" if similar else f"there are policies for {', '.join(sorted(known))}"
        raise ConfigError(f"{name} is neither a run below {RUNS_FOLDER} nor a policy of {place}; {advice}")
    file_name = f"{name}.safetensors"
    data = _read(place, file_name)
    path = f"{place.rstrip('/')}/{file_name}"
    digest = hashlib.sha256(data).hexdigest()
    if digest != known[name].sha256:
        raise CheckpointError(
            f"{path} is damaged, or is not the file of the index: its SHA-256 digest is {digest}, and {INDEX_NAME} "
            f"has {known[name].sha256}"
        )
    return replace(decode_checkpoint(data, path), path=name)


def read_index(place: str) -> PolicyIndex:
    """Read the index of a folder or an https address."""
    data = _read(place, INDEX_NAME)
    try:
        return PolicyIndex.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CheckpointError(f"{place.rstrip('/')}/{INDEX_NAME} cannot be used: {where}: {first['msg']}") from error


def installed_folder() -> Path:
    """Return the folder of the policies that are installed: inside of the package, or next to it in a clone."""
    package = Path(surreal.__file__).resolve().parent
    inside = package / "run" / "build" / "policies"
    return inside if inside.is_dir() else package.parent / "policies"


def _read(place: str, name: str) -> bytes:
    path = f"{place.rstrip('/')}/{name}"
    if "://" in place and not place.startswith("https://"):
        raise ConfigError(
            f"pretrained policies are read from a folder or an https address, but {VARIABLE} or `policies` is {place}",
            key=VARIABLE,
        )
    try:
        with _open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist; {VARIABLE} names the place of pretrained policies") from error
    except (OSError, HTTPException, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"{path} has more than {MAX_BYTES:,} bytes, which is the limit of a pretrained policy")
    return data


def _open(path: str) -> IO[bytes]:
    if "://" not in path:
        return Path(path).expanduser().open("rb")
    opened: IO[bytes] = build_opener(_HttpsOnly).open(path, timeout=_TIMEOUT_S)
    return opened


class _HttpsOnly(HTTPRedirectHandler):
    """Refuses to leave https."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if not newurl.startswith("https://"):
            raise URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
