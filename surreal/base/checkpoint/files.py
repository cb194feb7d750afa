"""Files in a folder or behind any fsspec URL, each whole or not there: for checkpoints, and what lies beside them."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from surreal.base.errors import CheckpointError, UnreadableError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
#: File systems in which an object appears when all of it has come, so that it needs no temporary name.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
#: An address that does not answer is given up soon: s3fs tries a few times by itself.
_S3_PATIENCE = {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 1}}


def is_temporary(name: str) -> bool:
    """Whether a file was left by a writer that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def list_names(folder: str) -> list[str]:
    """Names of what lies in a folder; none if there is no such folder.

    Raises:
        UnreadableError: it cannot be listed.
    """
    with _told(f"{folder} cannot be listed", UnreadableError):
        file_system, place = _open(folder)
        try:
            file_system.invalidate_cache()
            return [os.path.basename(path.rstrip("/")) for path in file_system.ls(place, detail=False)]
        except FileNotFoundError:
            return []


def read_file(path: str) -> bytes:
    """The content of a file.

    Raises:
        CheckpointError: it is missing.
        UnreadableError: it cannot be read.
    """
    with _told(f"checkpoint {path} cannot be read", UnreadableError):
        try:
            file_system, place = _open(path)
            data: bytes = file_system.cat_file(place)
        except FileNotFoundError as error:
            raise CheckpointError(f"checkpoint {path} does not exist") from error
        return data


def write_file(path: str, data: bytes) -> None:
    """Write a file, so that a reader sees the old one or the new one and never a part.

    Raises:
        CheckpointError: it could not be written.
    """
    with _told(f"checkpoint {path} could not be written"):
        file_system, place = _open(path)
        protocols = _protocols(file_system)
        if not _OBJECT_STORES.isdisjoint(protocols):  # a folder is a part of a name there
            file_system.pipe_file(place, data)
            return
        folder, name = os.path.split(place)
        temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
        file_system.makedirs(folder, exist_ok=True)
        if "file" in protocols:
            _write_local(temporary, place, data)
        else:
            file_system.pipe_file(temporary, data)
            file_system.mv(temporary, place)


def remove_file(path: str) -> None:
    """Remove a file; one that is not there is fine.

    Raises:
        CheckpointError: it cannot be removed.
    """
    with _told(f"{path} cannot be removed"), suppress(FileNotFoundError):
        file_system, place = _open(path)
        file_system.rm_file(place)


def move_file(source: str, target: str) -> None:
    """Move a file to another folder of the same file system, which is made if missing.

    Raises:
        CheckpointError: it cannot be moved; then it may be in both places.
    """
    with _told(f"{source} cannot be moved to {target}"):
        file_system, old = _open(source)
        _, new = _open(target)
        if _OBJECT_STORES.isdisjoint(_protocols(file_system)):
            file_system.makedirs(os.path.dirname(new), exist_ok=True)
        file_system.mv(old, new)


def _open(path: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it."""
    import fsspec  # which a launcher that looks at no place does without

    options: dict[str, Any] = {}
    if path.startswith(("s3://", "s3a://")) and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
        options["config_kwargs"] = _S3_PATIENCE
    file_system, place = fsspec.core.url_to_fs(path, **options)
    return file_system, place


def _protocols(file_system: Any) -> tuple[str, ...]:
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextmanager
def _told(problem: str, kind: type[CheckpointError] = CheckpointError) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # each file system's client has errors of its own
        raise kind(f"{problem}: {error or type(error).__name__}") from error


def _write_local(temporary: str, place: str, data: bytes) -> None:
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    # The rename itself lies in the folder: without this a power cut could undo it.
    descriptor = os.open(os.path.dirname(place), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
