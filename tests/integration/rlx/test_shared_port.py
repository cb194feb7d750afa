"""Servers side by side on one port: those of one run share it, those of another are refused."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.rlx.client.agent_proxy import AgentProxy
from surreal.rlx.protocol.errors import RlxServerError
from surreal.rlx.server.port_claim import PortClaim
from tests.warm_python import WarmPython

_SERVER = """
import sys
import tempfile
import threading
import gymnasium
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

settings = ServerSettings(port=int(sys.argv[1]), reuses_port=True, owner=sys.argv[2])
try:
    with RlxServer(RlxEnvPool(gymnasium.spaces.Discrete(2)), settings) as server:
        print(server.port, flush=True)
        sys.stdin.read()
except Exception as error:
    print(error, flush=True)
"""


class Process:
    """A server in a process of its own; `line` is its port, or why there is none."""

    def __init__(self, warm_python: WarmPython, port: int, owner: str) -> None:
        (stdin, self._end), (output, stdout) = os.pipe(), os.pipe()
        self.process = warm_python.start(
            ["-c", _SERVER, str(port), owner],
            folder=Path.cwd(),
            environment=os.environ,
            streams=(stdin, stdout, stdout),
        )
        os.close(stdin)
        os.close(stdout)
        with open(output) as told:
            self.line = told.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Let it end: nobody writes to it any more."""
        if self.process.returncode is None:
            os.close(self._end)
            self.process.wait(60)


@pytest.fixture
def start(warm_python: WarmPython) -> Iterator[Callable[[int, str], Process]]:
    made: list[Process] = []

    def make(port: int, owner: str) -> Process:
        made.append(Process(warm_python, port, owner))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_servers_of_one_run_share_a_port_and_those_of_another_are_refused(start: Any, free_port: int) -> None:
    first = start(free_port, "run a")
    port = int(first.line)
    second = start(port, "run a")
    assert second.line == str(port)
    refused = f"cannot listen on 127.0.0.1:{port}: port {port} belongs to run a, and run b needs another port"
    assert start(port, "run b").line == refused
    for _ in range(4):
        with AgentProxy(f"localhost:{port}") as client:
            client.connect()
            client.init()
    # The port is the run's as long as one of its servers lives, and nobody's when the last one is gone.
    first.kill()
    assert start(port, "run b").line == refused
    second.kill()
    assert start(port, "run b").line == str(port)


def test_program_that_shares_the_port_without_a_claim_is_noticed() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RlxServerError, match=f"port {port} of 127.0.0.1 cannot be had"):
            PortClaim("127.0.0.1", port, "run a")
        with PortClaim("127.0.0.1", port, "run a", is_bound=True):
            PortClaim("127.0.0.1", port, "run a").close()
    PortClaim("127.0.0.1", port, "run b").close()


def test_nothing_is_left_and_what_a_killed_server_left_is_in_nobodys_way(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    port = free_port
    killed = start(port, "run a")
    killed.kill()
    assert len(list(tmp_path.iterdir())) == 1
    first = PortClaim("127.0.0.1", port, "run b")
    second = PortClaim("127.0.0.1", port, "run b")
    first.close()
    with pytest.raises(RlxServerError, match="belongs to run b"):
        PortClaim("127.0.0.1", port, "run c")
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_many_come_and_go_and_never_two_owners_at_once(free_port: int) -> None:
    port, held, faults = free_port, [0, 0], []

    def visit(mine: int) -> None:
        for _ in range(15):
            try:
                with PortClaim("127.0.0.1", port, f"run {mine}"):
                    held[mine] += 1
                    faults.append(held[1 - mine])
                    held[mine] -= 1
            except RlxServerError:
                pass

    threads = [threading.Thread(target=visit, args=(index % 2,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults
    assert not any(faults)
