"""Files of this machine: locks that end with their process, files that are written whole, and secrets in files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

#: Environment variables: address of the Redis that the secrets are for, and the user of this process there.
ADDRESS_VARIABLE = "SURREAL_REDIS"
USER_VARIABLE = "SURREAL_REDIS_USER"
#: Folder with one file for each Redis user: its name is the user's, its content the password.
SECRETS_VARIABLE = "SURREAL_REDIS_SECRETS"
#: Suffix of a variable that names a file instead of a value.
FILE = "_FILE"

#: Errors of a disk without room: no space, no quota, no larger file allowed.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileLock:
    """A file that at most one process holds; the kernel releases it when that process ends for any reason.

    Args:
        path: in a folder that exists; the file is made if missing, and names its holder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Try to take the lock without waiting; returns whether this object holds it now."""
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not self._is_at_path(descriptor):  # its holder has just removed it
                    os.close(descriptor)
                    continue
                with contextlib.suppress(OSError):  # a full disk: the lock is held anyway
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return True

    def holder(self) -> str:
        """Return the last holder of the lock, as text: `process 4711 on HOST`."""
        try:
            return self.path.read_text(errors="replace").strip()[:200] or "another process"
        except OSError:
            return "another process"

    def release(self, *, is_removed: bool = False) -> None:
        """Release the lock, and leave an empty file, or none if `is_removed`."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            if is_removed:
                self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False


def write_whole(path: Path, data: str | bytes, *, mode: int = 0o666, is_synced: bool = True) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part; a failure leaves the old one. Text
    becomes UTF-8. If several processes write it, the last one wins.

    It has the permissions `mode`, less the umask. If it is synced, the disk has it, so that a power failure leaves no
    part of it either.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    content = data.encode() if isinstance(data, str) else data
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until the disk has a file, or the names of the files in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_whole(path: Path, data: bytes) -> None:
    """Append to a file, all of it or, as on a full disk, nothing."""
    with path.open("ab", buffering=0) as file:
        size, remaining = file.tell(), memoryview(data)
        try:
            while remaining:
                remaining = remaining[file.write(remaining) :]
        except OSError:
            file.truncate(size)
            raise


def older_path(path: Path) -> Path:
    """Return the path of the lines before those in a file that `rotate` bounds."""
    # Sorts before the newer file, since TensorBoard reads events in the order of their files.
    return path.with_name(f"{path.name.removesuffix('.surreal')}.older")


def rotate(path: Path, max_bytes: int, *, is_open: bool = False) -> bool:
    """Move a file that has reached a size aside, in place of the one before it; return whether it was moved.

    The file and its older part together have at most twice that size, plus one append. If other processes append to it
    (`is_open`), its content is moved, and they continue in the empty file. What they write at that moment is lost; on a
    full disk, so is the content.
    """
    if not path.exists() or path.stat().st_size < max_bytes:
        return False
    if is_open:
        try:
            shutil.copyfile(path, older_path(path))
        finally:
            os.truncate(path, 0)
    else:
        path.replace(older_path(path))
    return True


def write_in_place(path: Path, data: bytes) -> None:
    """Overwrite a file that is as long as `data`, also on a full disk; on an `OSError`, a reader may see a part."""
    with path.open("r+b") as file:
        file.write(data)


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has no room for a small file."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        return is_disk_full(error)
    return False


def parse_json(text: str | bytes) -> Any:
    """Decode JSON that another program wrote; raises `ValueError` if it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_disk_full(error: OSError) -> bool:
    """Whether an error means that the disk has no room left."""
    return error.errno in _FULL


def read_secret(path: Path, source: str) -> str:
    """Read a file that holds a secret, without surrounding white space."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{source}: {path} cannot be read: {why}") from None
    if not secret:
        raise ValueError(f"{source}: {path} is empty; the secret belongs there")
    return secret


def secret_of(environ: Mapping[str, str], variable: str) -> str | None:
    """Return a secret from the file that `VARIABLE_FILE` names, else from the variable itself; None without either.

    Secrets must not be arguments, because `ps` shows those.
    """
    if path := environ.get(variable + FILE):
        return read_secret(Path(path), f"${variable}{FILE}")
    return environ.get(variable) or None


def take_user(user: str, environ: MutableMapping[str, str]) -> None:
    """Connect to Redis as `user`, of `connection.rights`, from now on in this process, if a folder has secrets."""
    if environ.get(SECRETS_VARIABLE):
        environ[USER_VARIABLE] = user
