"""The RLX server against a bare asyncio echo of the same frames: steps per second, and latency.

    python -m benchmarks.rlx [--rounds N] [--seconds S] [--sessions 1,8,64,256] [--only TEXT]

Clients are bare asyncio sockets in a process of their own, each waiting for its action before it sends the next state.
* trivial: a policy that costs nothing, so what is measured is the protocol, the hand-over and the batches.
* network: `QAgent` with a QFunction of 2 x 64 (24 floats), or the `nature` network (84 x 84 bytes); one torch thread.
  For 256 sessions the floor is the network's own forward of the same batches, without any server.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.baselines.rlx_clients import Load, Outcome, run_clients, run_echo
from benchmarks.harness import alternate, report
from surreal.agent import Agent, QAgent
from surreal.agent.loop import AgentLoop
from surreal.model import ConvQFunction, QFunction
from surreal.rlx.admission import Admission
from surreal.rlx.codec import encode
from surreal.rlx.framing import frame
from surreal.rlx.pool import RlxEnvPool
from surreal.rlx.server import RlxServer
from surreal.rlx.settings import ServerSettings
from surreal.types import Action

NUM_ACTIONS = 6
STATES = {
    "24 floats": gymnasium.spaces.Box(-np.inf, np.inf, (24,), np.float32),
    "84x84 uint8": gymnasium.spaces.Box(0, 255, (84, 84), np.uint8),
}


class Trivial:
    """An agent that always does the same."""

    def __init__(self) -> None:
        self.model = SimpleNamespace(version=0)
        self.global_step: int | None = None

    def act_batch(self, obs: Any, *_: Any) -> Action:
        return Action(np.ones(len(obs), np.int64), {}, 0)

    def metrics(self) -> dict[str, float]:
        return {}


def make_agent(state: str) -> Agent:
    if "84" in state:
        return QAgent(ConvQFunction(action_space=NUM_ACTIONS))
    return QAgent(QFunction(hiddens=[64, 64], action_space=NUM_ACTIONS))


@contextmanager
def serving(agent: Any, space: gymnasium.Space[Any], window_s: float) -> Iterator[tuple[RlxServer, RlxEnvPool]]:
    pool = RlxEnvPool(gymnasium.spaces.Discrete(NUM_ACTIONS), space, gather_window_s=window_s)
    loop, stop = AgentLoop(pool, agent, None), threading.Event()
    with RlxServer(pool, ServerSettings(port=0, admission=Admission())) as server:
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        try:
            yield server, pool
        finally:
            stop.set()
            thread.join()


def frames(space: gymnasium.Space[Any]) -> tuple[bytes, bytes, int]:
    """Give init, update, and the length of an answer to it."""
    state = np.zeros(space.shape or (), space.dtype)
    update = {"command": "update", "reward": 1.0, "state": state, "terminal": False}
    answer = frame(encode({"response": "action", "data": 1}))
    return frame(encode({"command": "init", "exploit": False})), frame(encode(update)), len(answer)


def compare(
    name: str, state: str, agent: Any, sessions: int, args: argparse.Namespace, clients: Any, echo: int
) -> None:
    hello, request, answer_bytes = frames(STATES[state])
    ready_bytes = len(frame(encode({"response": "ready"})))
    outcomes: dict[str, list[Outcome]] = {"ours": [], "echo": []}

    def drive(kind: str, load: Load) -> float:
        clients.send(load)
        outcomes[kind].append(clients.recv())
        return outcomes[kind][-1].rate

    with serving(agent, STATES[state], args.window) as (server, pool):
        mine = Load(server.port, sessions, args.seconds, hello, ready_bytes, request, answer_bytes)
        floor = Load(echo, sessions, args.seconds, b"", 0, request, len(request))
        ours, theirs = alternate(lambda: drive("ours", mine), lambda: drive("echo", floor), args.rounds)
        rows = pool.metrics()["rlx/batch_rows"]
    p50, p99, echo_p50, echo_p99 = (
        round(float(np.median([getattr(outcome, key) for outcome in outcomes[kind][1:]])), 3)
        for kind in ("ours", "echo")
        for key in ("p50_ms", "p99_ms")
    )
    report(
        f"rlx {name}, {state}", "steps/s", ours, theirs, aim=0.6, sessions=sessions, batch_rows=round(rows, 1),
        p50_ms=p50, p99_ms=p99, echo_p50_ms=echo_p50, echo_p99_ms=echo_p99,
        p99_ratio=round(p99 / (echo_p99 + 1000 * args.window), 2), gather_window_ms=1000 * args.window,
    )  # fmt: skip


def compare_forward(state: str, sessions: int, args: argparse.Namespace, clients: Any) -> None:
    """Measure the server against the bare forward of its network, a batch of all sessions at a time."""
    hello, request, answer_bytes = frames(STATES[state])
    agent, bare = make_agent(state), make_agent(state)
    obs = np.zeros((sessions, *(STATES[state].shape or ())), STATES[state].dtype)
    flags, ids = np.zeros(sessions, np.bool_), np.arange(sessions)

    def forward() -> float:
        count, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < args.seconds:
            bare.act_batch(obs, flags, ids, flags)
            count += sessions
        return count / (time.perf_counter() - started_s)

    with serving(agent, STATES[state], args.window) as (server, pool):
        load = Load(
            server.port, sessions, args.seconds, hello, len(frame(encode({"response": "ready"}))), request, answer_bytes
        )

        def ours() -> float:
            clients.send(load)
            rate: float = clients.recv().rate
            return rate

        mine, floor = alternate(ours, forward, args.rounds)
        rows = pool.metrics()["rlx/batch_rows"]
    report(
        f"rlx against its network's forward, {state}", "steps/s", mine, floor, aim=0.8,
        sessions=sessions, batch_rows=round(rows, 1),
    )  # fmt: skip


def start(context: Any, target: Callable[..., None]) -> tuple[Any, Any]:
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    return process, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--sessions", default="1,8,64,256")
    parser.add_argument("--window", type=float, default=0.0, help="gathering window, s")
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    (client_process, clients), (echo_process, pipe) = start(context, run_clients), start(context, run_echo)
    echo = pipe.recv()
    for state in STATES:
        for sessions in [int(text) for text in args.sessions.split(",")]:
            for name in ("trivial", "network"):
                if args.only in f"{name} {state}":
                    agent = Trivial() if name == "trivial" else make_agent(state)
                    compare(name, state, agent, sessions, args, clients, echo)
    if args.only in "forward 84x84 uint8":
        compare_forward("84x84 uint8", 256, args, clients)
    clients.send(None)
    client_process.join()
    echo_process.kill()


if __name__ == "__main__":
    main()
