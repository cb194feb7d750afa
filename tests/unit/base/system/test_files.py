"""Locks that the living hold, and files that are whole."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surreal.base.system.files import FileLock, is_disk_full, is_full, write_whole

HOLD = """
import sys, time
from surreal.base.system.files import FileLock
lock = FileLock(sys.argv[1])
print(lock.acquire(), flush=True)
time.sleep(60)
"""


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_lock_ends_with_its_holder_however_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == "True\n"
        lock = FileLock(path)
        assert not lock.acquire()
        assert lock.holder().startswith(f"process {process.pid} on ")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert lock.acquire()
    assert lock.is_held
    assert lock.holder().startswith(f"process {os.getpid()} on ")


def test_a_lock_that_is_given_back_can_be_taken_and_says_nothing(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert (tmp_path / "lock").read_bytes() == b""
    assert second.acquire()
    second.release(is_removed=True)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert lock.acquire()
    path.unlink()
    other = FileLock(path)
    assert other.acquire()
    third = FileLock(path)
    assert not third.acquire()


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")
    with no_room(10), pytest.raises(OSError, match="too large") as caught:
        write_whole(path, b"new" * 100)
    assert is_disk_full(caught.value)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_disk_without_room_is_known(tmp_path: Path) -> None:
    assert not is_full(tmp_path)
    with no_room(10):
        assert is_full(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_writers_at_once_leave_the_whole_file_of_one(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(text: str) -> None:
        for _ in range(100):
            write_whole(path, text, is_synced=False)

    threads = [threading.Thread(target=write, args=(letter * 5000,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert path.read_text() in ("a" * 5000, "b" * 5000)
    for thread in threads:
        thread.join()
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_disk_has_a_file_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "file", list[bool]()

    def sync(descriptor: int) -> None:
        synced.append(path.exists())
        assert os.fstat(descriptor).st_size == 3

    monkeypatch.setattr("os.fsync", sync)
    write_whole(path, "new")
    assert synced == [False]
    assert path.read_text() == "new"


def test_permissions_are_given(tmp_path: Path) -> None:
    write_whole(tmp_path / "secret", "x", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
