"""Compare the RLX server with a bare asyncio echo of the same frames: steps per second, and latency.

    python -m benchmarks.rlx [--rounds N] [--seconds S] [--sessions 1,8,64,256] [--only TEXT]

Clients are bare asyncio sockets in a separate process; each waits for its action before it sends the next state.

* trivial: a policy without cost, which measures the protocol, the handover and the batches.
* network: `QAgent` with a QFunction of 2 x 64 (24 floats), or the `nature` network (84 x 84 bytes); one torch thread.
  For 256 sessions, the network's forward pass without a server is another floor.
* paced: 64 sessions of the `nature` network and 256 of the small one, each at 20 steps per second, with
  `rlx.max_wait_ms` and without; the aim is a p99 of at most 30 ms on two quiet cores.
* floods: the slowdown of a session while another connection floods the server in each of a dozen ways. The floor is the
  same session alone, and `p50_ratio` is the result.

If the machine is busy, `cpu_us` and `echo_cpu_us` (CPU time of the serving process for one step) are better measures
than the rates. `p99_ratio` compares latencies; the gathering window is subtracted from Surreal's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import psutil
import torch

from benchmarks.alone import alone
from benchmarks.baselines.rlx_clients import Load, Outcome, run_clients, run_echo
from benchmarks.baselines.rlx_floods import FLOODS, run_floods
from benchmarks.harness import alternate, report
from surreal.agent import Agent, QAgent
from surreal.agent.loop import AgentLoop
from surreal.base.system.process import keep_freed_memory
from surreal.base.types import Action
from surreal.model import ConvQFunction, QFunction
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

NUM_ACTIONS = 6
STATES: dict[str, gymnasium.spaces.Box] = {
    "24 floats": gymnasium.spaces.Box(-np.inf, np.inf, (24,), np.float32),
    "84x84 uint8": gymnasium.spaces.Box(0, 255, (84, 84), np.uint8),
}


#: Steps per s of a client of the paced cases, their deadline, s, and their shortest round, s.
RATE_HZ, MAX_WAIT_S, _PACED_S = 20.0, 0.015, 3.0


class Trivial:
    """An agent that always chooses the same action."""

    wants_outcomes = False

    def __init__(self) -> None:
        self.model = SimpleNamespace(version=0, return_filter=None)
        self.global_step: int | None = None
        self.shows: frozenset[str] = frozenset()

    def act_batch(self, obs: Any, *_: Any) -> Action:
        return Action(np.ones(len(obs), np.int64), {}, 0)

    def metrics(self) -> dict[str, float]:
        return {}


def make_agent(state: str) -> Agent:
    if "84" in state:
        return QAgent(ConvQFunction(action_space=NUM_ACTIONS), None)
    return QAgent(QFunction(hiddens=[64, 64], action_space=NUM_ACTIONS), None)


@contextmanager
def serving(
    agent: Any, space: gymnasium.Space[Any], window_s: float, max_wait_s: float | None = None
) -> Iterator[tuple[RlxServer, RlxEnvPool]]:
    pool = RlxEnvPool(gymnasium.spaces.Discrete(NUM_ACTIONS), space, gather_window_s=window_s, max_wait_s=max_wait_s)
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
    """Return an init request, an update request, and the length of its answer."""
    state = np.zeros(space.shape or (), space.dtype)
    update = {"command": "update", "reward": 1.0, "state": state, "terminal": False}
    answer = frame(encode({"response": "action", "data": 1}))
    return frame(encode({"command": "init", "exploit": False})), frame(encode(update)), len(answer)


class Served:
    """A server under load: its clients' latencies, and its CPU time for a step."""

    def __init__(self, clients: Any, pid: int, load: Load) -> None:
        self._clients = clients
        self._process = psutil.Process(pid)
        self._load = load
        self._outcomes: list[Outcome] = []
        self._costs_us: list[float] = []

    def run(self) -> float:
        """Return the steps per second of one round."""
        before = self._process.cpu_times()
        self._clients.send(self._load)
        outcome: Outcome = self._clients.recv()
        after = self._process.cpu_times()
        self._outcomes.append(outcome)
        spent_s = after.user + after.system - before.user - before.system
        self._costs_us.append(1e6 * spent_s / max(1, outcome.answers))
        return outcome.rate

    def medians(self) -> tuple[float, float, float]:
        """Return p50 and p99 of the latency, ms, and the CPU time of a step, us, without the first round (warm-up)."""
        rounds = zip(self._outcomes, self._costs_us, strict=True)
        table = [(outcome.p50_ms, outcome.p99_ms, cost_us) for outcome, cost_us in rounds][1:]
        p50, p99, cost_us = np.median(table, axis=0).tolist()
        return p50, p99, cost_us


def compare(
    name: str, state: str, agent: Any, sessions: int, args: argparse.Namespace, clients: Any, echo: tuple[int, int]
) -> None:
    hello, request, answer_bytes = frames(STATES[state])
    ready_bytes = len(frame(encode({"response": "ready"})))
    echo_port, echo_pid = echo
    with serving(agent, STATES[state], args.window) as (server, pool):
        load = Load(server.port, sessions, args.seconds, hello, ready_bytes, request, answer_bytes)
        mine = Served(clients, os.getpid(), load)
        floor = Served(clients, echo_pid, Load(echo_port, sessions, args.seconds, b"", 0, request, len(request)))
        ours, theirs = alternate(mine.run, floor.run, args.rounds)
        rows = pool.metrics()["rlx/rows_per_batch"]
    (p50, p99, cost), (echo_p50, echo_p99, echo_cost) = mine.medians(), floor.medians()
    window_ms = 1000 * args.window
    report(
        f"rlx {name}, {state}", "steps/s", ours, theirs, aim=0.6 if name == "trivial" and sessions == 64 else None,
        sessions=sessions, batch_rows=round(rows, 1), p50_ms=round(p50, 3), p99_ms=round(p99, 3),
        echo_p50_ms=round(echo_p50, 3), echo_p99_ms=round(echo_p99, 3), gather_window_ms=window_ms,
        p99_ratio=round((p99 - window_ms) / echo_p99, 2), cpu_us=round(cost, 2), echo_cpu_us=round(echo_cost, 2),
    )  # fmt: skip


def compare_paced(state: str, sessions: int, args: argparse.Namespace, clients: Any) -> None:
    """Compare batches with a deadline and those without a wait, for clients that step 20 times per second."""
    hello, request, answer_bytes = frames(STATES[state])
    ready_bytes, seconds = len(frame(encode({"response": "ready"}))), max(args.seconds, _PACED_S)
    with (
        serving(make_agent(state), STATES[state], 0.0, MAX_WAIT_S) as (server, pool),
        serving(make_agent(state), STATES[state], 0.0) as (other_server, other_pool),
    ):
        loads = [
            Load(port, sessions, seconds, hello, ready_bytes, request, answer_bytes, RATE_HZ)
            for port in (server.port, other_server.port)
        ]
        mine, other = (Served(clients, os.getpid(), load) for load in loads)
        ours, theirs = alternate(mine.run, other.run, args.rounds)
        rows, other_rows = (each.metrics()["rlx/rows_per_batch"] for each in (pool, other_pool))
    (p50, p99, cost), (other_p50, other_p99, other_cost) = mine.medians(), other.medians()
    report(
        f"rlx at {RATE_HZ:.0f} Hz, {state}", "steps/s", ours, theirs, aim=None, sessions=sessions,
        max_wait_ms=1000 * MAX_WAIT_S, batch_rows=round(rows, 1), p50_ms=round(p50, 3), p99_ms=round(p99, 3),
        cpu_us=round(cost, 2), aim_p99_ms=30.0, unset_batch_rows=round(other_rows, 1), unset_p50_ms=round(other_p50, 3),
        unset_p99_ms=round(other_p99, 3), unset_cpu_us=round(other_cost, 2),
    )  # fmt: skip


def compare_forward(state: str, sessions: int, args: argparse.Namespace, clients: Any) -> None:
    """Compare the server with the bare forward pass of its network, in batches of the fastest size on this machine."""
    hello, request, answer_bytes = frames(STATES[state])
    agent, bare = make_agent(state), make_agent(state)
    ready_bytes = len(frame(encode({"response": "ready"})))

    def forward(rows: int, seconds: float) -> float:
        obs = np.zeros((rows, *(STATES[state].shape or ())), STATES[state].dtype)
        flags, ids = np.zeros(rows, np.bool_), np.arange(rows)
        count, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            bare.act_batch(obs, flags, ids, flags)
            count += rows
        return count / (time.perf_counter() - started_s)

    forward(sessions, 0.1)
    best = max((sessions >> shift for shift in range(5)), key=lambda rows: forward(rows, args.seconds / 2))
    with serving(agent, STATES[state], args.window) as (server, pool):
        load = Load(server.port, sessions, args.seconds, hello, ready_bytes, request, answer_bytes)
        mine = Served(clients, os.getpid(), load)
        ours, floor = alternate(mine.run, lambda: forward(best, args.seconds), args.rounds)
        rows = pool.metrics()["rlx/rows_per_batch"]
    p50, p99, _ = mine.medians()
    report(
        f"rlx against its network's forward, {state}", "steps/s", ours, floor, aim=0.8, sessions=sessions,
        batch_rows=round(rows, 1), forward_rows=best, p50_ms=round(p50, 3), p99_ms=round(p99, 3),
    )  # fmt: skip


def compare_floods(state: str, args: argparse.Namespace, clients: Any, floods: Any) -> None:
    """Measure one session next to a flooding client, and without that client."""
    hello, request, answer_bytes = frames(STATES[state])
    ready_bytes = len(frame(encode({"response": "ready"})))
    for name in FLOODS:
        if args.flood not in name:
            continue
        with serving(Trivial(), STATES[state], args.window) as (server, _):
            load = Load(server.port, 1, args.seconds, hello, ready_bytes, request, answer_bytes)
            calm, beside = Served(clients, os.getpid(), load), Served(clients, os.getpid(), load)

            def flooded(name: str = name, port: int = server.port, beside: Served = beside) -> float:
                floods.send((port, name, [0.0] * (STATES[state].shape or (1,))[0]))
                floods.recv()
                rate = beside.run()
                floods.send(None)
                floods.recv()
                return rate

            ours, floor = alternate(flooded, calm.run, args.rounds)
        (p50, p99, _), (calm_p50, calm_p99, _) = beside.medians(), calm.medians()
        report(
            f"rlx next to a flood of {name}", "steps/s", ours, floor, aim=0.5, p50_ms=round(p50, 3),
            p99_ms=round(p99, 3), calm_p50_ms=round(calm_p50, 3), calm_p99_ms=round(calm_p99, 3),
            p50_ratio=round(p50 / calm_p50, 2),
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
    parser.add_argument("--only", default="", help="measure only cases with this text in their names")
    parser.add_argument("--flood", default="", help="measure only floods with this text in their names")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)  # this and the next line: as in `surreal rlx-server`
    keep_freed_memory()
    context = multiprocessing.get_context("spawn")
    (client_process, clients), (echo_process, pipe) = start(context, run_clients), start(context, run_echo)
    echo = pipe.recv(), echo_process.pid or 0
    for state in STATES:
        for sessions in [int(text) for text in args.sessions.split(",")]:
            for name in ("trivial", "network"):
                if args.only in f"{name} {state}":
                    agent = Trivial() if name == "trivial" else make_agent(state)
                    compare(name, state, agent, sessions, args, clients, echo)
    for state, sessions in (("84x84 uint8", 64), ("24 floats", 256)):
        if args.only in f"paced {state}":
            compare_paced(state, sessions, args, clients)
    if args.only in "forward 84x84 uint8":
        compare_forward("84x84 uint8", 256, args, clients)
    if args.only in "floods":
        flood_process, floods = start(context, run_floods)
        compare_floods("24 floats", args, clients, floods)
        floods.send(None)
        flood_process.join()
    clients.send(None)
    client_process.join()
    echo_process.kill()


if __name__ == "__main__":
    with alone():
        main()
