"""`RunFiles`: the files of a run's folder that the collector writes, each line exactly once.

Files only grow, up to a size at which they are moved aside. `collector.json` records how far the log stream was
followed *and* the length of each file at that moment. It is replaced atomically after the files were written. If a
collector is killed in between, files are longer than recorded; the next one truncates them to the recorded length and
reads the same entries again. The lock file keeps a second collector out of the folder until the first has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from surreal.base.system.files import FileLock, parse_json, rotate, write_whole

logger = logging.getLogger(__name__)

STATE_NAME = "collector.json"
LOCK_NAME = "collector.lock"
FORMAT = 1
#: Most processes whose numbers are remembered, and most missing numbers of each.
MAX_PROCESSES = 4096
MAX_MISSING = 64


@dataclass(frozen=True)
class Seen:
    """The written entries of one process: all up to `last`, except the missing ones."""

    last: int = 0
    missing: tuple[int, ...] = ()

    def __contains__(self, sequence: int) -> bool:
        return sequence <= self.last and sequence not in self.missing

    def add(self, sequence: int) -> Seen:
        """Add an entry; skipped numbers may still come, and the newest of them are remembered."""
        if sequence <= self.last:
            return Seen(self.last, tuple(number for number in self.missing if number != sequence))
        jumped = range(max(self.last + 1, sequence - MAX_MISSING), sequence)
        return Seen(sequence, (self.missing + tuple(jumped))[-MAX_MISSING:])


@dataclass
class CollectorProgress:
    """Position up to which the stream was followed."""

    cursor: str = "0-0"  #: id of the last entry read
    server: str = ""  #: identity of the Redis server's process, because another one may hold another stream
    seen: dict[str, Seen] = field(default_factory=dict)  #: by process id, least recently seen first


class RunFiles:
    """Append-only files in a folder, committed together with the progress that they contain."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.progress = CollectorProgress()
        self._sizes: dict[str, int] = {}
        self._lock = FileLock(self.folder / LOCK_NAME)

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def acquire(self) -> bool:
        """Try to become the folder's only writer, and load the progress; raises `OSError` if it cannot be used."""
        if self._lock.is_held:
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire():
            return False
        try:
            self._load()
            # A file that is missing was moved aside by a collector that was killed right after that.
            self._sizes = {path: size for path, size in self._sizes.items() if self._resolve(path).exists()}
            self._cut_back()
        except BaseException:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        self._lock.release()

    def rotate(self, max_bytes: Callable[[str], int]) -> None:
        """Move files that are longer than `max_bytes(path)` aside, or raise `OSError`; `commit` begins new ones."""
        for path in list(self._sizes):
            if self._sizes[path] >= max_bytes(path) and rotate(self._resolve(path), max_bytes(path)):
                del self._sizes[path]

    def commit(self, contents: Mapping[str, bytes], progress: CollectorProgress) -> None:
        """Append to files, then record the progress, atomically; after an `OSError`, nothing counts as written."""
        for process in list(progress.seen)[:-MAX_PROCESSES]:
            del progress.seen[process]
        new = [path for path in contents if path not in self._sizes]
        try:
            if new:
                # Recorded before they exist, so that a crash cannot leave a file of unknown length.
                self._save(self.progress, self._sizes | {path: self._length(path) for path in new})
            sizes = self._sizes | {path: self._append(path, content) for path, content in contents.items()}
            self._save(progress, sizes)
        except OSError:
            with contextlib.suppress(OSError):
                self._cut_back()
            raise
        self.progress = progress

    def _append(self, path: str, content: bytes) -> int:
        file = self._resolve(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(fd, remaining) :]
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _cut_back(self) -> None:
        for path, size in self._sizes.items():
            if self._length(path) > size:
                os.truncate(self._resolve(path), size)

    def _length(self, path: str) -> int:
        try:
            return self._resolve(path).stat().st_size
        except FileNotFoundError:
            return 0

    def _resolve(self, path: str) -> Path:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise ValueError(f"{path!r} leads out of the run's folder")
        return self.folder / parts

    def _save(self, progress: CollectorProgress, sizes: Mapping[str, int]) -> None:
        state = {
            "format": FORMAT,
            "cursor": progress.cursor,
            "server": progress.server,
            "seen": {process: [numbers.last, list(numbers.missing)] for process, numbers in progress.seen.items()},
            "sizes": dict(sizes),
        }
        write_whole(self.folder / STATE_NAME, json.dumps(state, indent=1), is_synced=False)  # as the logs are not
        self._sizes = dict(sizes)

    def _load(self) -> None:
        file = self.folder / STATE_NAME
        self.progress, self._sizes = CollectorProgress(), {}
        try:
            state = parse_json(file.read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise ValueError(f"format {state['format']}")
            seen = {str(key): Seen(int(last), tuple(map(int, lost))) for key, (last, lost) in state["seen"].items()}
            sizes = {str(path): int(size) for path, size in state["sizes"].items()}
            for path in sizes:
                self._resolve(path)
            self.progress = CollectorProgress(str(state["cursor"]), str(state["server"]), seen)
            self._sizes = sizes
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            spare = file.with_suffix(".bad")
            file.replace(spare)
            logger.warning("%s is unreadable (%s): put aside as %s, entries may be repeated", file, error, spare.name)
