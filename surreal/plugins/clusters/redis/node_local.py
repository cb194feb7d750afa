"""`NodeLocal`: an append-only file on the disk of a node while its server runs, and in the run's folder between jobs.

Files move, so that there is one place that counts. A token in both places tells whether a node's files are the newest:
those of a node that failed are used if the run comes back to it, and not after it ran elsewhere.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path

from surreal.base.errors import ConfigError, FolderError, describe_os_error


class NodeLocal:
    """Moves the files of a run's Redis.

    Args:
        run: the run's id.
        run_dir: the run's folder, which all nodes see.
        disk: folder on the node's own disk.
    """

    def __init__(self, run: str, run_dir: Path, disk: Path) -> None:
        self.folder = disk / f"surreal-{run}"  #: where the server keeps its files
        self._shared = run_dir / "redis"
        self._tokens = (run_dir / "redis.token", self.folder / "token")

    def fetch(self) -> None:
        """Bring the newest files to this node, before its server starts. Raises `ConfigError` if a folder cannot be
        written, or another user may have written it.
        """
        try:
            self._claim()
            has_shared = self._shared.is_dir()
            if has_shared or self._read(0) != self._read(1):
                shutil.rmtree(self.folder)
                self._claim()
            if has_shared:
                shutil.copytree(self._shared, self.folder, dirs_exist_ok=True)
                self.folder.chmod(0o700)
            token = secrets.token_hex(8)
            for path in reversed(self._tokens):
                path.write_text(token)
            if has_shared:
                gone = self._shared.with_name("redis.gone")
                shutil.rmtree(gone, ignore_errors=True)
                self._shared.rename(gone)  # at once, so that no part of it can be taken for the whole
                shutil.rmtree(gone, ignore_errors=True)
        except OSError as error:
            raise ConfigError(f"--local-disk: {error.filename} cannot be written: {error.strerror or error}") from error

    def keep(self) -> None:
        """Bring the files to the run's folder, whole or not at all, after the server has stopped.

        Raises:
            FolderError: they could not be written; the node's files remain.
        """
        new = self._shared.with_name("redis.new")
        try:
            shutil.rmtree(new, ignore_errors=True)
            shutil.copytree(self.folder, new)
            new.rename(self._shared)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            why = error.args[0][0][2] if isinstance(error, shutil.Error) else describe_os_error(error)
            raise FolderError(
                f"--local-disk: the experience stays in {self.folder}, because {why}; a job that starts on "
                f"{socket.gethostname()} again continues with it"
            ) from error
        shutil.rmtree(self.folder, ignore_errors=True)

    def _claim(self) -> None:
        """Make the folder, or accept the one of an earlier job: the disk may be one where all users write."""
        with suppress(FileExistsError):
            self.folder.mkdir(mode=0o700, parents=True)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            what = "is not a folder" if not stat.S_ISDIR(found.st_mode) else f"belongs to user {found.st_uid}"
            raise ConfigError(f"--local-disk: {self.folder} {what}; remove it, or choose another place")
        self.folder.chmod(0o700)

    def _read(self, place: int) -> str:
        path = self._tokens[place]
        return path.read_text() if path.is_file() else f"there is none in place {place}"
