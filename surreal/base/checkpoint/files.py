"""Files in a folder or behind any fsspec URL, each written whole: checkpoints and their scores.

What fails is a `CheckpointError`; an `UnreadableError` if a file or folder may exist, and cannot be read.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from surreal.base.errors import CheckpointError, UnreadableError
from surreal.base.system.files import sync, write_whole

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
#: File systems in which an object appears only when it is complete, so that it needs no temporary name.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
#: Short limits for an address that does not answer; s3fs itself tries a few times.
_S3_LIMITS = {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 1}}


def is_temporary(name: str) -> bool:
    """Whether a file was left by a writer that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def list_names(folder: str) -> list[str]:
    """List the names in a folder; none if the folder does not exist."""
    with _as_checkpoint_error(f"{folder} cannot be listed", UnreadableError):
        file_system, place = _open(folder)
        try:
            file_system.invalidate_cache()
            return [os.path.basename(path.rstrip("/")) for path in file_system.ls(place, detail=False)]
        except FileNotFoundError:
            return []


def read_file(path: str) -> bytes:
    """Read a file, which must exist."""
    with _as_checkpoint_error(f"checkpoint {path} cannot be read", UnreadableError):
        try:
            file_system, place = _open(path)
            data: bytes = file_system.cat_file(place)
        except FileNotFoundError as error:
            raise CheckpointError(f"checkpoint {path} does not exist") from error
        return data


def write_file(path: str, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    with _as_checkpoint_error(f"checkpoint {path} could not be written"):
        file_system, place = _open(path)
        protocols = _protocols(file_system)
        if not _OBJECT_STORES.isdisjoint(protocols):  # they have no folders
            file_system.pipe_file(place, data)
            return
        folder, name = os.path.split(place)
        file_system.makedirs(folder, exist_ok=True)
        if "file" in protocols:
            write_whole(Path(place), data)
            # The folder holds the rename: without this, a power failure could undo it.
            sync(folder)
        else:
            temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
            file_system.pipe_file(temporary, data)
            file_system.mv(temporary, place)


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    with _as_checkpoint_error(f"{path} cannot be removed"), suppress(FileNotFoundError):
        file_system, place = _open(path)
        file_system.rm_file(place)


def move_file(source: str, target: str) -> None:
    """Move a file to another folder; after a `CheckpointError`, it may be in both places."""
    with _as_checkpoint_error(f"{source} cannot be moved to {target}"):
        file_system, old = _open(source)
        _, new = _open(target)
        if _OBJECT_STORES.isdisjoint(_protocols(file_system)):
            file_system.makedirs(os.path.dirname(new), exist_ok=True)
        file_system.mv(old, new)


def _open(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path in it."""
    import fsspec  # a launcher that looks at no place need not load it

    options: dict[str, Any] = {}
    if path.startswith(("s3://", "s3a://")) and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
        options["config_kwargs"] = _S3_LIMITS
    file_system, place = fsspec.core.url_to_fs(path, **options)
    return file_system, place


def _protocols(file_system: Any) -> tuple[str, ...]:
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextmanager
def _as_checkpoint_error(problem: str, kind: type[CheckpointError] = CheckpointError) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # the client of each file system has its own errors
        raise kind(f"{problem}: {error or type(error).__name__}") from error
