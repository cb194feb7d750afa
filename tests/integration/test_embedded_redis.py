"""`EmbeddedRedis`: real servers, killed owners."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError

from surreal.base.errors import BusyError, RedisUnavailableError
from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.distributed.server.access import ServerAccess

BOUND = 64 << 20

OWNER = """
import sys, threading, time
from surreal.distributed import EmbeddedRedis
server = EmbeddedRedis(maxmemory_bytes=64 << 20)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
else:
    server.start()
print(server.address, flush=True)
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder: what a killed owner leaves there is removed."""
    with tempfile.TemporaryDirectory(prefix="srl-") as folder:
        yield Path(folder)


def test_server_is_private_bounded_and_leaves_nothing(redis_binary: str) -> None:
    with EmbeddedRedis(maxmemory_bytes=BOUND, program=redis_binary) as server, RedisClient(server.address) as client:
        folder = server.log_path.parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "redis.sock").stat().st_mode & 0o077 == 0
        assert server.port is None
        settings = client.redis.config_get("*")
        assert settings["port"] == "0"
        assert settings["maxmemory"] == str(BOUND)
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["save"] == ""
        assert settings["appendonly"] == "no"
        assert int(client.redis.info("server")["process_id"]) == server.pid
    assert not folder.exists()
    assert not server.is_alive


def test_full_server_refuses_writes(redis_binary: str) -> None:
    with EmbeddedRedis(maxmemory_bytes=4 << 20, program=redis_binary) as server, RedisClient(server.address) as client:
        with pytest.raises(OutOfMemoryError):
            for i in range(1000):
                client.redis.set(str(i), bytes(100_000))
        assert client.redis.get("0") == bytes(100_000)


@pytest.mark.parametrize("how", ["main", "thread"])
def test_server_ends_with_its_owner_even_when_that_is_killed(how: str, folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(folder)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        with RedisClient(address) as client:
            assert client.ping()
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            wait_until(lambda: not client.ping())
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()


def test_signals_of_the_terminal_do_not_reach_the_server() -> None:
    with EmbeddedRedis(maxmemory_bytes=BOUND) as server:
        assert os.getsid(server.pid) != os.getsid(0)


def test_server_started_by_a_thread_is_watched_and_stopped() -> None:
    server = EmbeddedRedis(maxmemory_bytes=BOUND)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with RedisClient(server.address) as client:
        assert client.ping()
        server.stop()
        assert not client.ping()


@pytest.mark.parametrize("keeps_data", [False, True])
def test_restart_at_the_same_address(tmp_path: Path, keeps_data: bool) -> None:
    with EmbeddedRedis(maxmemory_bytes=BOUND, appendonly_dir=tmp_path / "data" if keeps_data else None) as server:
        address = server.address
        with RedisClient(address) as client:
            client.redis.set("a", b"1")
            server.kill()
            assert not server.is_alive
            assert not client.ping()
            server.restart()
            assert server.is_alive
            assert server.address == address
            assert client.redis.get("a") == (b"1" if keeps_data else None)


def test_folder_of_an_append_only_file_has_one_server(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for _ in range(2):  # whoever has ended lets the next one in
        with EmbeddedRedis(maxmemory_bytes=BOUND, appendonly_dir=folder) as server:
            second = EmbeddedRedis(maxmemory_bytes=BOUND, appendonly_dir=folder)
            with pytest.raises(BusyError, match=f"holds the data of a Redis that runs, of process {os.getpid()} on"):
                second.start()
            assert server.is_alive
            server.kill()
            server.restart()
    assert not list(folder.glob("*.lock"))


def test_port_and_password() -> None:
    password = 'a "b" \\ @:/?#'
    with EmbeddedRedis(maxmemory_bytes=BOUND, port=0, access=ServerAccess(password)) as server:
        assert server.port is not None
        with RedisClient(server.address) as client:
            assert client.ping()
            assert password not in client.address
        with RedisClient(f"127.0.0.1:{server.port}", password=password) as client:
            assert client.ping()
        with RedisClient(f"127.0.0.1:{server.port}") as client:
            assert not client.ping()
        command = Path(f"/proc/{server.pid}/cmdline")
        if command.exists():
            assert b"@:/?#" not in command.read_bytes()


def test_program_that_is_no_server_is_an_error_with_its_output(tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho this is not Redis\nexit 3\n")
    program.chmod(0o755)
    server = EmbeddedRedis(maxmemory_bytes=BOUND, program=program)
    with pytest.raises(RedisUnavailableError, match=r"ended with status 3:\nthis is not Redis"):
        server.start()
    with pytest.raises(RuntimeError, match="before start"):
        _ = server.address


def test_server_for_others_runs_until_it_is_stopped() -> None:
    stop = threading.Event()
    addresses: list[str] = []

    def on_ready(server: EmbeddedRedis) -> None:
        addresses.append(server.address)
        with RedisClient(server.address) as client:
            assert client.ping()
        stop.set()

    EmbeddedRedis(maxmemory_bytes=BOUND, port=0).serve(stop, on_ready)
    with RedisClient(addresses[0]) as client:
        assert not client.ping()


def test_server_for_others_waits_until_its_clients_have_left() -> None:
    stop, replies = threading.Event(), list[bool]()

    def hand_over(client: RedisClient) -> None:
        stop.set()
        with client:
            replies.extend(bool(client.redis.set("last", str(number))) for number in range(5000))

    def on_ready(server: EmbeddedRedis) -> None:
        client = RedisClient(server.address)
        assert client.ping()
        threads.append(threading.Thread(target=hand_over, args=(client,)))
        threads[0].start()

    threads: list[threading.Thread] = []
    EmbeddedRedis(maxmemory_bytes=BOUND, port=0).serve(stop, on_ready, drain_s=60)
    threads[0].join()
    assert replies == [True] * 5000


def test_server_for_others_ends_although_a_client_stays() -> None:
    stop, clients = threading.Event(), list[RedisClient]()

    def on_ready(server: EmbeddedRedis) -> None:
        clients.append(RedisClient(server.address))
        assert clients[0].ping()
        stop.set()

    EmbeddedRedis(maxmemory_bytes=BOUND, port=0).serve(stop, on_ready, drain_s=0.1)
    assert not clients[0].ping()
    clients[0].close()


def test_server_for_others_tells_when_it_ended_by_itself() -> None:
    with pytest.raises(RedisUnavailableError, match="ended by itself"):
        EmbeddedRedis(maxmemory_bytes=BOUND, port=0).serve(threading.Event(), lambda server: server.kill())


def test_log_is_forwarded_and_its_end_explains_an_error(capsys: pytest.CaptureFixture[str], redis_binary: str) -> None:
    with EmbeddedRedis(maxmemory_bytes=BOUND, port=0, program=redis_binary, forwards_log=True) as server:
        assert server.log_path.read_text() == ""
        second = EmbeddedRedis(maxmemory_bytes=BOUND, port=server.port, program=redis_binary, forwards_log=True)
        with pytest.raises(RedisUnavailableError, match="address already in use"):
            second.start()
    printed = capsys.readouterr().err
    assert "Ready to accept connections" in printed
    assert "Address already in use" in printed


def test_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RedisUnavailableError, match="address already in use; another program listens there"):
            EmbeddedRedis(maxmemory_bytes=BOUND, port=taken.getsockname()[1]).serve(threading.Event())
