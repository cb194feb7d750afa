"""Rewards that become known later, while servers and clients are killed: clients are told what is learned."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.stream import Stream
from tests.warm_python import WarmPython, environment_of_a_user

TIMEOUT_S = 120.0
#: A server whose actions are its number. It writes which chunks are acknowledged; a line on stdin ends it in order.
SERVER = """
import json, sys, threading
import numpy as np
from gymnasium import spaces
from surreal.agent import AgentLoop
from surreal.base.types import Action
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.rlx.pool.held_steps import HeldSteps
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

port, life, redis, run, file = sys.argv[1:]

class Number:
    global_step, wants_outcomes, model = None, False, None
    def act_batch(self, obs, *_):
        return Action(np.full(len(obs), int(life)), {}, 1)

pool = RlxEnvPool(spaces.Discrete(100), spaces.Box(-1e6, 1e6, (2,), np.float32))
sender = ExpSender(RedisClient(redis, run=run), chunk_steps=8, max_delay_s=0.02)
held = HeldSteps(sender, pool.take_final)
loop = AgentLoop(pool, Number(), held)
server = RlxServer(pool, ServerSettings(port=int(port), max_amend_s=60.0))
server.start()
print(server.port, flush=True)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
with open(file, "a", buffering=1) as acknowledged:
    while not stop.is_set():
        loop.step(0.02)
        print(*sender.sent_through, file=acknowledged)
metrics = server.metrics()
server.close()
for _ in range(3):
    loop.step(0.0)
held.release()
assert sender.close()
print(json.dumps(metrics), flush=True)
"""
#: A client that writes what it is about to ask, and what it was told. Step k of client n begins in the state (n, k),
#: and its reward is k; amended, it is -k. It also amends steps of the clients whose files it is given.
CLIENT = """
import random, sys
import numpy as np
from surreal.rlx import AgentProxy, AgentProxyConnectionError

address, number, file, *older = sys.argv[1:]
rng, pending, step = random.Random(int(number)), [], 0
for lines in map(lambda path: [line.split() for line in open(path)], older):
    asked = {line[1:3] for line in map(tuple, lines) if line[0] == "ask"}
    pending += [line[1:] for line in lines if line[0] == "told" and line[4] != "None" and tuple(line[1:3]) not in asked]
agent = AgentProxy(address)
with open(file, "a", buffering=1) as log:
    while True:
        try:
            agent.connect(retry=50)
            agent.init()
            while True:
                step += 1
                life, length = agent.update(None, np.float32([number, step])), rng.randrange(4, 30)
                for taken in range(1, length + 1):
                    within_s = rng.choice([None, None, 0.05, 50.0])
                    state, is_over = np.float32([number, step + 1]), taken == length
                    agent.update(float(step), state, terminal=is_over, amend_within_s=within_s)
                    print("told", number, step, life, agent.step_id, file=log)
                    if agent.step_id is not None:
                        pending.append((number, step, life, agent.step_id))
                    step += 1
                    for _ in range(rng.choice([0, 1, 2]) if pending else 0):
                        whose, which, _, step_id = rng.choice(pending)
                        print("ask", whose, which, life, file=log)
                        told = agent.amend(int(step_id), reward=-float(which))
                        print("answer", whose, which, life, told, file=log)
                        if whose != number:
                            print("foreign", told, file=log)
        except AgentProxyConnectionError:
            pass
"""


class Trial:
    """A server and clients, each in a process of its own."""

    def __init__(self, redis_address: str, run: str, folder: Path, python: WarmPython) -> None:
        self.life, self._port, self._folder, self._python = 0, "0", folder, python
        self._stream = (redis_address, run)
        self._clients: dict[int, Any] = {}
        self._begun = 0

    def start_server(self) -> None:
        self.life += 1
        program = (SERVER, self._port, str(self.life), *self._stream, self._folder / "acknowledged")
        (stdin, typing), (printed, stdout) = os.pipe(), os.pipe()
        self._server = self._python.start(
            ["-c", *map(str, program)],
            folder=self._folder,
            environment=environment_of_a_user(),
            streams=(stdin, stdout, 2),
        )
        os.close(stdin)
        os.close(stdout)
        self._typing, self._printed = os.fdopen(typing, "w"), os.fdopen(printed)
        self._port = self._printed.readline().strip()

    def start_client(self, *older: Path) -> None:
        number, self._begun = self._begun, self._begun + 1
        files = (str(self._folder / f"client-{number}"), *map(str, older))
        with open(os.devnull, "rb") as nothing:
            self._clients[number] = self._python.start(
                ["-c", CLIENT, f"127.0.0.1:{self._port}", str(number), *files],
                folder=self._folder,
                environment=environment_of_a_user(),
                streams=(nothing.fileno(), 1, 2),
            )

    def kill_server(self) -> None:
        self._server.kill()
        self._server.wait()
        self._hang_up()

    def kill_client(self, number: int) -> Path:
        client = self._clients.pop(number)
        client.kill()
        client.wait()
        return self._folder / f"client-{number}"

    def replace_client(self) -> None:
        """Kill the oldest client, and start another that knows the numbers of its steps."""
        self.start_client(self.kill_client(min(self._clients)))

    def end(self) -> dict[str, float]:
        """Kill the clients and end the server in order; returns its metrics."""
        for number in list(self._clients):
            self.kill_client(number)
        print(file=self._typing, flush=True)
        assert self._server.wait(TIMEOUT_S) == 0
        metrics = json.loads(self._printed.read())
        self._hang_up()
        return dict(metrics)

    def _hang_up(self) -> None:
        self._typing.close()
        self._printed.close()

    def close(self) -> None:
        for number in list(self._clients):
            self.kill_client(number)
        if self._server.poll() is None:
            self.kill_server()

    def lines(self, kind: str) -> list[tuple[str, ...]]:
        """Return the lines of a kind in all clients' files, without it."""
        texts = [path.read_text() for path in self._folder.glob("client-*")]
        found = [tuple(line.split()) for text in texts for line in text.splitlines() if line]
        return [line[1:] for line in found if line[0] == kind]

    def wait_for_answers(self, count: int) -> None:
        """Wait until the server in place has told each client that lives about so many steps."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            told = Counter(int(client) for client, _, life, _ in self.lines("told") if life == str(self.life))
            if all(told[number] >= count for number in self._clients):
                return
            assert time.monotonic() < deadline_s
            assert all(client.poll() is None for client in self._clients.values())
            time.sleep(0.05)

    def acknowledged(self) -> dict[str, int]:
        """Return how many chunks of each sender were acknowledged."""
        lines = [line.split() for line in (self._folder / "acknowledged").read_text().splitlines(keepends=True)]
        return {line[0]: int(line[1]) for line in lines if len(line) == 2}


@pytest.fixture
def trial(redis_server: Any, run_id: str, tmp_path: Path, warm_python: WarmPython) -> Iterator[Trial]:
    made = Trial(redis_server.address, run_id, tmp_path, warm_python)
    made.start_server()
    for _ in range(3):
        made.start_client()
    yield made
    made.close()


def read_stream(address: str, run: str) -> tuple[Counter[str], list[tuple[int, int, int, float]]]:
    """Return the number of chunks of each sender, and (client, step, server, reward) of all steps."""
    chunks: Counter[str] = Counter()
    steps: list[tuple[int, int, int, float]] = []
    with RedisClient(address, run=run) as client:
        queue = PointerQueue(Stream(client, 0))
        while queue.enqueue_step():
            while (chunk := queue.dequeue()) is not None:
                chunks[chunk.chunk_id.split("-")[0]] += 1
                states = chunk.leaves[0][chunk.obs_row[chunk.own]].astype(int).tolist()
                columns = (chunk.columns[name][chunk.own].tolist() for name in ("action", "reward"))
                steps += [(*state, *rest) for state, *rest in zip(states, *columns, strict=True)]
    assert queue.refused_chunks == queue.gone_chunks == 0
    return chunks, steps


def test_what_was_told_about_rewards_is_what_is_learned(trial: Trial, redis_server: Any, run_id: str) -> None:
    disturb: tuple[Callable[[], None], ...] = (trial.replace_client, trial.kill_server)
    for number in range(4):
        trial.wait_for_answers(40)
        disturb[number % 2]()
        if number % 2:
            trial.start_server()
    trial.wait_for_answers(40)
    trial.replace_client()
    trial.wait_for_answers(80)
    metrics = trial.end()

    chunks, steps = read_stream(redis_server.address, run_id)
    for sender, count in trial.acknowledged().items():
        assert chunks[sender] >= count, "an acknowledged chunk is lost"
    rewards = {(client, step): reward for client, step, _, reward in steps}
    assert len(rewards) == len(steps), "a step is doubled"

    answers, asked = trial.lines("answer"), trial.lines("ask")
    told = Counter((int(client), int(step)) for client, step, _, answer in answers if answer == "True")
    assert set(told.values()) == {1}, "what was accepted is final"
    unknown = Counter(asked) - Counter(line[:3] for line in answers)  # the asker or the server was killed
    may_be_amended = {(int(client), int(step)) for client, step, _ in unknown}
    for (client, step), reward in rewards.items():
        if (client, step) in told:
            assert reward == -step, "an accepted amendment is lost"
        elif reward != step:
            assert (client, step) in may_be_amended, "a refused amendment counts"

    last = str(trial.life)
    expected: dict[tuple[int, int], list[int]] = {}
    for client, step, life, _ in trial.lines("told"):
        is_there = (int(client), int(step)) in rewards
        assert is_there or life != last, "a server that ended in order lost a step"
        expected.setdefault((int(client), int(life)), []).append(int(step))
    # A server that was killed loses the end of a session: no step is missing before one that is there.
    for (client, _), numbers in expected.items():
        is_there = [(client, number) in rewards for number in sorted(numbers)]
        assert is_there == sorted(is_there, reverse=True)

    for name, answer in (("amended_rewards", "True"), ("refused_amendments", "False")):
        known = sum(line[2:] == (last, answer) for line in answers)
        assert known <= metrics[f"rlx/{name}_total"] <= known + sum(line[2] == last for line in unknown)
    assert metrics["rlx/expired_rewards_total"] > 0
    # All of that has happened: amendments of an earlier server's steps are refused, those of an earlier client are not.
    of_server = {(client, step): life for client, step, life, _ in trial.lines("told")}
    assert {line[3] for line in answers if of_server.get(line[:2], line[2]) != line[2]} == {"False"}
    assert ("True",) in trial.lines("foreign")
