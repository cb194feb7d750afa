"""`surreal slurm redis`: the Redis of a job, as its other nodes find it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from surreal.distributed.connection.client import RedisClient
from surreal.run.process.run_folder import RunFolder
from tests.warm_python import environment_of_a_user


def test_it_is_found_through_the_folder_and_comes_back_with_its_data(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "demo")
    server = start(folder)
    try:
        wait_for(lambda: folder.read_address() is not None)
        address, run = folder.read_address() or ("", "")
        assert run == "demo"
        assert address.startswith("redis://:")
        assert (folder.path / "redis.address").stat().st_mode & 0o077 == 0
        with RedisClient(address, run=run) as client:
            client.redis.set("key", "value")
            assert not (folder.path / "redis").exists()
            os.kill(client.redis.info("server")["process_id"], signal.SIGKILL)
            # The append-only file is written to disk each second; the system has it at once.
            assert client.retry(lambda: client.redis.get("key"), what="ask again") == b"value"
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert folder.read_address() is None
    assert (folder.path / "redis" / "appendonlydir").is_dir()  # it was on the local disk meanwhile

    server = start(folder)
    try:
        wait_for(lambda: folder.read_address() is not None)
        again, _ = folder.read_address() or ("", "")
        assert again != address  # at least another password
        with RedisClient(again) as client:
            assert client.redis.get("key") == b"value"
    finally:
        server.terminate()
        assert server.wait(60) == 0


def start(folder: RunFolder) -> subprocess.Popen[bytes]:
    options = ("--run", "demo", "--run-dir", str(folder.path), "--interface", "lo", "--appendonly")
    options += ("--local-disk", str(folder.path.parent / "disk"))
    command = [sys.executable, "-m", "surreal", "slurm", "redis", *options]
    return subprocess.Popen(command, env=environment_of_a_user(), stderr=subprocess.DEVNULL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
