"""A real server with a policy of a test's own, and what the tests of clients in other languages need.

serve            starts a server in this process; `.address`, `.episodes` (what the agent's side saw), `.restart()`
serve_to_file    starts a server in a process of its own; `.address`, `.steps()` (what it saw), `.kill()`, `.start()`
certificate      files of a certificate for localhost, and of its key
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.types import Action, StepBatch, StepKind
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

Policy = Callable[[Any, int], Any]
#: A server that writes each step into a file before it answers with action 1.
TO_FILE = """
import sys
import numpy as np
from gymnasium import spaces
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

pool = RlxEnvPool(spaces.Discrete(2), spaces.Box(-99, 99, (4,), np.float32), gather_window_s=0.0, interventions=True)
server = RlxServer(pool, ServerSettings(port=int(sys.argv[1])))
server.start()
print(server.port, flush=True)
with open(sys.argv[2], "a", buffering=1) as steps:
    while True:
        batch = pool.recv(0.05)
        for row, (episode, step) in enumerate(batch.obs[: len(batch.env_ids), :2].tolist()):
            is_agents = "is_intervention" not in batch.info or not batch.info["is_intervention"][row]
            executed = "agent's" if is_agents else batch.info["executed_action"][row]
            steps.write(f"{episode:g} {step:g} {executed}\\n")
        live = batch.env_ids[batch.num_last :]
        if len(live):
            pool.send(np.ones(len(live), np.int64), live)
"""


@dataclass
class Episode:
    """One episode as the agent's side saw it; observations are copies."""

    states: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    end: str = ""  #: "terminated", "truncated" or "closed"; "" while it goes on
    is_exploiting: bool = False


class Ones:
    """The policy `ones`, which sessions may name: it always takes action 1, and says that action 0 is worth more."""

    model = SimpleNamespace(version=0)
    shows: frozenset[str] = frozenset()

    def act_batch(self, obs: Any, explore: Any, slots: Any, is_first: Any, action_mask: Any = None) -> Action:
        outputs = {"q_values": np.tile(np.float32([9, 1]), (len(slots), 1))} if self.shows else {}
        return Action(np.ones(len(slots), np.int64), {}, 0, outputs)


class Served:
    """A server, and a thread that acts for all its sessions.

    Args:
        action_space, observation_space: of the environments.
        policy: gives the actions [N, ...] for the observations of N rows.
        options: of `ServerSettings`.
    """

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        observation_space: gymnasium.Space[Any] | None,
        policy: Policy,
        **options: Any,
    ) -> None:
        self.episodes: list[Episode] = []
        self.metrics: list[tuple[str, str, Any, int | None]] = []
        self._spaces = (action_space, observation_space)
        self._policy = policy
        self._options = {"on_metric": lambda *metric: self.metrics.append(metric), **options}
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def start(self) -> None:
        self._running: dict[int, Episode] = {}
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._pool = RlxEnvPool(*self._spaces, gather_window_s=0.0, policies={"ones": Ones()})
        self.server = RlxServer(self._pool, ServerSettings(**{"port": 0, **self._options}))
        self.server.start()
        self._options["port"] = self.server.port  # the same after a restart
        self._thread = threading.Thread(target=self._drive, name="test/policy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.server.close()
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._pool.close()
        if self._failure is not None:
            raise self._failure

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s; episodes: {self.episodes[-5:]}"
            time.sleep(0.005)

    def ended(self, *ends: str) -> list[Episode]:
        return [episode for episode in self.episodes if episode.end in (ends or ("terminated", "truncated"))]

    def _drive(self) -> None:
        try:
            while not self._stop.is_set():
                batch = self._pool.recv(0.05)
                self._note(batch)
                live = len(batch.env_ids) - batch.num_last
                if live:
                    rows = _rows(batch.obs, slice(batch.num_last, None))
                    self._pool.send(np.asarray(self._policy(rows, live)), batch.env_ids[batch.num_last :])
        except BaseException as error:
            self._failure = error

    def _note(self, batch: StepBatch) -> None:
        # A slot that was closed may begin again in the same batch.
        for slot in batch.closed_ids.tolist():
            self._running.pop(slot).end = "closed"
        for row, slot in enumerate(batch.env_ids.tolist()):
            if batch.kind[row] == StepKind.FIRST:
                episode = self._running[slot] = Episode(is_exploiting=not batch.explore[row])
                self.episodes.append(episode)
            else:
                episode = self._running[slot]
                episode.rewards.append(float(batch.reward[row]))
            episode.states.append(_copy(_rows(batch.obs, row)))
            if batch.kind[row] == StepKind.LAST:
                self._running.pop(slot).end = "terminated" if batch.terminated[row] else "truncated"


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Factory of servers: `serve(action_space, observation_space, policy, **settings)`; CartPole's by default."""
    running: list[Served] = []

    def start(
        action_space: gymnasium.Space[Any] | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
        policy: Policy | None = None,
        **options: Any,
    ) -> Served:
        served = Served(action_space or spaces.Discrete(2), observation_space, policy or _lean, **options)
        running.append(served)
        return served

    yield start
    for served in running:
        served.stop()


class ServedToFile:
    """A server in a process of its own, which may be killed and started again at its port."""

    def __init__(self, file: Path) -> None:
        self._file, self._port = file, "0"
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, "-c", TO_FILE, self._port, str(self._file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._port = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def steps(self) -> list[str]:
        """Return what it saw, in all its lives: two numbers of each state, and who chose the action before it."""
        return self._file.read_text().splitlines()


@pytest.fixture
def serve_to_file(tmp_path: Path) -> Iterator[Callable[[], ServedToFile]]:
    """Factory of a server that can be killed."""
    running: list[ServedToFile] = []

    def start() -> ServedToFile:
        running.append(ServedToFile(tmp_path / f"steps-{len(running)}"))
        return running[-1]

    yield start
    for served in running:
        served.kill()


def _lean(obs: Any, count: int) -> Any:
    """Push a cart towards where its pole falls; 0 for states that are none of CartPole's."""
    if isinstance(obs, np.ndarray) and obs.ndim == 2 and obs.shape[1] == 4:
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int64)
    return np.zeros(count, np.int64)


def _rows(obs: Any, rows: Any) -> Any:
    if isinstance(obs, dict):
        return {key: _rows(value, rows) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_rows(value, rows) for value in obs)
    return obs[rows]


def _copy(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: _copy(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_copy(value) for value in obs)
    return obs.copy() if isinstance(obs, np.ndarray) else obs
