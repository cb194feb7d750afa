"""More sockets than an RLX server may open, idle or full of garbage: the clients that play notice next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame
from tests.integration.rlx.conftest import Wire

IS_WHOLE = bool(os.environ.get("SURREAL_TEST_ATTACK"))
FILES = 256
COUNT = 1_100 if IS_WHOLE else 300
STEPS, ROUNDS = (4_000, 5) if IS_WHOLE else (20, 1)
MAX_LOG_BYTES = 100_000

ATTACKS = {
    "idle": (None, b""),
    "bogus": ("token", frame(encode({"command": "bogus"}))),
    "garbage": ("token", bytes(range(256))),
    "half": ("token", b"9000:" + b"x" * 100),
    "http": ("token", b"GET / HTTP/1.1\r\nHost: "),
}


class Server:
    """A server in another process."""

    def __init__(self, folder: Path, start: Callable[..., Any], token: str | None) -> None:
        self._log = folder / "log"
        words = [str(FILES), *([token] if token else [])]
        with self._log.open("wb") as log:
            self._process = start("tests.attack.rlx_server", *words, stderr=log)
        self.port = int(self._process.stdout.readline())

    def metrics(self) -> dict[str, float]:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def log_bytes(self) -> int:
        return self._log.stat().st_size


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Factory of processes, which end with their standard input."""
    made: list[subprocess.Popen[str]] = []

    def spawn(*words: str, **options: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        made.append(subprocess.Popen([sys.executable, "-m", *words], **pipes, **options))
        return made[-1]

    yield spawn
    for process in reversed(made):
        process.communicate(timeout=60)


def p50_ms(client: Wire) -> float:
    """Give the median time of a step."""
    times = []
    for step in range(STEPS):
        started = time.perf_counter()
        assert client.update([(-1) ** step, 0], 1.0 if step else None) == (step + 1) % 2
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))


def connect(port: int, token: str | None) -> Wire:
    """Connect as a client does: again, if the server has no room at the moment."""
    deadline_s = time.monotonic() + 60
    while True:
        client = Wire(port)
        try:
            assert client.init(token=token)["response"] == "ready"
        except (EOFError, ConnectionError):
            client.close()
            assert time.monotonic() < deadline_s, "no newcomer gets in"
            time.sleep(0.05)
        else:
            return client


@pytest.mark.parametrize("attack", ATTACKS if IS_WHOLE else ["idle", "bogus"])
def test_sockets_that_bring_no_valid_init_take_nothing_from_the_others(
    attack: str, tmp_path: Path, start: Callable[..., Any]
) -> None:
    token, payload = ATTACKS[attack]
    server = Server(tmp_path, start, token)
    client = connect(server.port, token)
    p50_ms(client)  # the first steps load what is needed
    calm = min(p50_ms(client) for _ in range(ROUNDS))
    attackers = start("tests.attack.rlx_sockets", str(server.port), str(COUNT), payload.hex())
    assert attackers.stdout.readline() == "all\n"
    attacked = [p50_ms(client) for _ in range(ROUNDS)]
    newcomer = connect(server.port, token)
    p50_ms(newcomer)
    newcomer.close()
    metrics = server.metrics()
    assert metrics["rlx/connections_count"] < FILES
    assert metrics["rlx/refused_total"] + metrics["rlx/errors_total"] > 0
    attackers.communicate(timeout=60)
    p50_ms(client)
    client.close()
    assert server.log_bytes() < MAX_LOG_BYTES
    if IS_WHOLE:
        assert np.median(attacked) <= 2 * calm, f"{attacked} ms under attack, {calm} ms without it"
