"""A real server on a free port, an agent's side that acts for it, and clients that are bare sockets."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.types import StepBatch
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.framing import FrameReader, frame
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

TIMEOUT_S = 60.0
SPACE, TWO = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)


class Harness:
    """A server, and a thread that acts: action 1 where the first number of the state is positive, else 0."""

    def __init__(self, pool: RlxEnvPool, **options: Any) -> None:
        self.pool = pool
        self.rows: list[StepBatch] = []  #: batches of one row each, copied
        self.closed: list[int] = []
        self.metrics: list[tuple[Any, ...]] = []
        self.may_act = threading.Event()
        self.may_act.set()
        self._stop = threading.Event()
        options.setdefault("admission", Admission(None, 0))
        settings = ServerSettings(port=0, on_metric=lambda *record: self.metrics.append(record), **options)
        self.server = RlxServer(pool, settings)
        self.server.start()
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server.port

    def _loop(self) -> None:
        while not self._stop.is_set():
            batch = self.pool.recv(0.05)
            self.closed += batch.closed_ids.tolist()
            self._note(batch)
            ids = batch.env_ids[batch.num_last :]
            if len(ids):
                while not self.may_act.wait(0.05) and not self._stop.is_set():
                    pass
                self.pool.send(self._act(batch), ids)

    def _note(self, batch: StepBatch) -> None:
        for row in range(len(batch.env_ids)):
            obs = np.array(batch.obs[row]) if isinstance(batch.obs, np.ndarray) else batch.obs
            columns = {name: getattr(batch, name)[row] for name in ("kind", "env_ids", "reward", "terminated")}
            columns |= {name: bool(getattr(batch, name)[row]) for name in ("truncated", "explore", "record")}
            self.rows.append(batch._replace(obs=obs, **columns))

    def _act(self, batch: StepBatch) -> Any:
        count = len(batch.env_ids) - batch.num_last
        if not isinstance(self.pool.action_space, spaces.Discrete):
            return np.repeat(np.asarray(self.pool.action_space.sample())[None], count, axis=0)
        if not isinstance(batch.obs, np.ndarray) or batch.obs.dtype == object:
            return np.zeros(count, np.int64)
        return (batch.obs[batch.num_last :].reshape(count, -1)[:, 0] > 0).astype(np.int64)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.005)

    def close(self) -> None:
        self.server.close()
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


class Wire:
    """A client as a bare socket."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._reader = FrameReader()
        self._payloads: list[bytes] = []

    def send(self, **message: Any) -> None:
        self.sock.sendall(frame(encode(message)))

    def recv(self) -> dict[str, Any]:
        while not self._payloads:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self._payloads += self._reader.feed(data)
        return decode(self._payloads.pop(0))

    def ask(self, **message: Any) -> dict[str, Any]:
        self.send(**message)
        return self.recv()

    def init(self, **more: Any) -> dict[str, Any]:
        return self.ask(command="init", exploit=False, **more)

    def update(self, state: Any, reward: Any = None, *, terminal: bool = False, **more: Any) -> Any:
        reply = self.ask(command="update", reward=reward, state=state, terminal=terminal, **more)
        assert reply["response"] == "action", reply
        return reply["data"]

    def is_closed(self) -> bool:
        """Whether the server closes the connection, without a word or after some."""
        try:
            with suppress(ConnectionResetError):
                while self.sock.recv(65536):
                    pass
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    """Factory of servers; takes the arguments of `RlxEnvPool` in `pool`, and those of `ServerSettings`."""
    made: list[Harness] = []

    def make(
        observation_space: Any = SPACE,
        action_space: Any = TWO,
        pool: dict[str, Any] | None = None,
        **options: Any,
    ) -> Harness:
        made.append(Harness(RlxEnvPool(action_space, observation_space, **(pool or {})), **options))
        return made[-1]

    before = {thread.name for thread in threading.enumerate()}
    yield make
    for one in made:
        one.close()
    deadline_s = time.monotonic() + 20.0  # a WebSocket client's own thread ends a moment after its connection
    while not {thread.name for thread in threading.enumerate()} <= before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert {thread.name for thread in threading.enumerate()} <= before


@pytest.fixture
def wire() -> Iterator[Callable[[Harness], Wire]]:
    """Factory of connected clients."""
    made: list[Wire] = []

    def connect(to: Harness) -> Wire:
        made.append(Wire(to.port))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names)
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True, timeout=60)
    return files
