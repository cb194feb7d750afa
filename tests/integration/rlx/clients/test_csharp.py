"""The C# client: built with every warning an error, tested by its own program, and run against real servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.rlx.protocol.codec import decode
from surreal.rlx.protocol.framing import FrameReader, frame

ROOT = Path(__file__).parents[4]
SOURCES = ROOT / "clients" / "csharp"
VECTORS = ROOT / "tests" / "golden" / "rlx_vectors.json"
CART = gymnasium.make("CartPole-v1").observation_space
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, require_tool: Any) -> list[str | Path]:
    """The command of the tests' program."""
    built = tmp_path_factory.mktemp("csharp") / "test.exe"
    sources = (SOURCES / "RlxAgent.cs", Path(__file__).with_name("TestRlxAgent.cs"))
    command = [require_tool("mcs"), "-langversion:7", "-warn:4", "-warnaserror", f"-out:{built}", *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return [require_tool("mono"), built]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Factory of processes, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str | Path) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(list(map(str, command)), text=True, bufsize=1, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def run(*command: str | Path, stdin: str = "") -> str:
    done = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_client_is_a_file_of_at_most_740_lines() -> None:
    assert len((SOURCES / "RlxAgent.cs").read_text().splitlines()) <= 740


def test_values_limits_frames_and_damaged_messages(program: list[str | Path]) -> None:
    assert run(*program) == ""


def test_golden_vectors_are_made_read_and_written_byte_for_byte(program: list[str | Path]) -> None:
    vectors = json.loads(VECTORS.read_text())
    lines = "".join(f"{name} {vector['frame_hex']}\n" for name, vector in vectors.items())
    assert run(*program, "golden", stdin=lines) == lines


def test_sessions_with_a_real_server(program: list[str | Path], serve: Any) -> None:
    served = serve(observation_space=CART, token="secret", max_amend_s=60.0)
    assert run(*program, "play", served.address) == ""
    served.wait(lambda: served.ended("terminated"))
    assert [episode.rewards for episode in served.ended("terminated")] == [[1.0, 0.5]]
    assert ("scalar", "client/csharp", 2.5, 3) in served.metrics
    assert [name for _, name, _, _ in served.metrics] == ["client/csharp", "client/sizes"]
    served.wait(lambda: list(served._pool.take_final().values()) == [2.0])


def test_nothing_that_was_answered_is_lost_when_the_server_is_killed(
    program: list[str | Path], start: Any, serve_to_file: Any
) -> None:
    served = serve_to_file()
    client = start(*program, "episodes", served.address, "60")
    answered = [client.stdout.readline().strip() for _ in range(410)]  # within an episode
    served.kill()
    served.start()
    answered += client.communicate(timeout=TIMEOUT_S)[0].splitlines()
    assert client.returncode == 0
    seen = served.steps()
    assert set(answered) <= set(seen)
    # The episode that was cut is repeated from its beginning, and no other one.
    begun = [int(line.split()[0]) for line in seen if line.split()[1] == "0"]
    assert set(begun) == set(range(60))
    assert len(begun) == 61
    assert {line.split()[2] for line in answered} == {"1", "agent's"}


def test_actions_leave_in_time_while_the_server_hangs_and_while_it_is_gone(
    program: list[str | Path], start: Any, serve_to_file: Any
) -> None:
    served = serve_to_file()
    robot = start(*program, "rate", served.address)
    assert robot.stdout.readline() == "in time\n"
    os.kill(served.process.pid, signal.SIGSTOP)  # silent, but connected
    print(file=robot.stdin)
    assert robot.stdout.readline() == "late\n"
    served.kill()
    served.start()
    print(file=robot.stdin)
    assert robot.stdout.readline() == "in time\n"
    assert robot.communicate("\n", timeout=TIMEOUT_S)[0] == ""
    assert robot.returncode == 0


def test_a_pause_holds_the_robot_and_its_steps_are_not_experience(program: list[str | Path], serve: Any) -> None:
    served = serve(observation_space=gymnasium.spaces.Box(-999, 999, (4,), np.float32))
    assert run(*program, "pause", served.address) == ""
    labels = [[float(state[0]) for state in episode.states] for episode in served.episodes]
    assert {label for episode in labels for label in episode} == {1, 2, 3, 4, 5, 6}
    begun = {episode[0] for episode in labels}
    assert begun >= {2, 6, 5}  # a pause ends an episode


class LossyNetwork:
    """A way to a server, on which the answer to the first amendment is lost, and the connection with it."""

    def __init__(self, server: str) -> None:
        self._server, self._has_lost = server, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        host, port = self._server.split(":")
        with client, socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as server:
            client.settimeout(TIMEOUT_S)
            requests, replies = FrameReader(), FrameReader()
            while request := _next_payload(client, requests):
                server.sendall(frame(request))
                reply = _next_payload(server, replies)
                if decode(request)["command"] == "amend" and not self._has_lost:
                    self._has_lost = True
                    return
                client.sendall(frame(reply))


def _next_payload(sock: socket.socket, reader: FrameReader) -> bytes:
    """Return the next payload of a side that waits for each answer; nothing at the end."""
    while data := sock.recv(65536):
        if payloads := reader.feed(data):
            return payloads[0]
    return b""


def test_an_amendment_whose_answer_is_lost_is_sent_again_and_counts_once(program: list[str | Path], serve: Any) -> None:
    served = serve(observation_space=CART, max_amend_s=60.0)
    network = LossyNetwork(served.address)
    try:
        assert run(*program, "amend", network.address) == "False\n"  # of the second one, which was refused
    finally:
        network.close()
    assert network.connections == 2
    metrics = served.server.metrics()
    assert [metrics[f"rlx/{name}_total"] for name in ("amended_rewards", "refused_amendments")] == [1, 1]
    served.wait(lambda: 2.0 in served._pool.take_final().values())
