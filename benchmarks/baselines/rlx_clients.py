"""Clients as bare asyncio sockets, which send one prepared frame repeatedly and record the latency of each answer.

`benchmarks.rlx` runs this in a separate process, and talks to it through a pipe. The floor, an echo server, is here as
well.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np


@dataclass(frozen=True)
class Load:
    """The clients' task."""

    port: int
    sessions: int
    seconds: float
    hello: bytes  #: first request, whose answer is not measured
    hello_bytes: int  #: length of that answer
    request: bytes
    answer_bytes: int  #: length of each answer
    rate_hz: float | None = None  #: requests per s of each client; None: each follows at once on the last answer


@dataclass(frozen=True)
class Outcome:
    """The clients' results."""

    answers: int  #: all answers, including those before the measurement
    rate: float  #: answers per s, all clients together
    p50_ms: float
    p99_ms: float


class _Client(asyncio.Protocol):
    def __init__(self, load: Load, latencies: list[float]) -> None:
        self.load = load
        self.latencies = latencies
        self.missing = load.hello_bytes
        self.sent_s = 0.0
        self.is_ready = False
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.load.hello:
            transport.write(self.load.hello)
        else:
            self.ready.set_result(None)

    def begin(self) -> None:
        self.is_ready = True
        self.due_s = time.perf_counter()
        self.send()

    def send(self) -> None:
        self.missing = self.load.answer_bytes
        self.sent_s = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing > 0:
            return
        if not self.is_ready:
            self.ready.set_result(None)
            return
        now = time.perf_counter()
        self.latencies.append(now - self.sent_s)
        if self.load.rate_hz is None:
            self.send()
            return
        # A client whose action came too late continues at once, and keeps its period from there.
        self.due_s = max(self.due_s + 1 / self.load.rate_hz, now)
        asyncio.get_running_loop().call_later(self.due_s - now, self.send)


async def _drive(load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    clients = []
    for _ in range(load.sessions):
        _, client = await loop.create_connection(lambda: _Client(load, latencies), "127.0.0.1", load.port)
        clients.append(client)
    await asyncio.gather(*(client.ready for client in clients))
    for client in clients:
        client.begin()
        if load.rate_hz is not None:  # their periods begin at different times
            await asyncio.sleep(1 / load.rate_hz / load.sessions)
    await asyncio.sleep(load.seconds / 4)
    answers = len(latencies)
    latencies.clear()
    started_s = time.perf_counter()
    await asyncio.sleep(load.seconds)
    elapsed_s, measured = time.perf_counter() - started_s, np.array(latencies)
    for client in clients:
        client.transport.abort()
    await asyncio.sleep(0.05)
    p50, p99 = np.percentile(measured, [50, 99]) * 1000 if len(measured) else (np.nan, np.nan)
    return Outcome(answers + len(measured), len(measured) / elapsed_s, float(p50), float(p99))


def run_clients(pipe: Connection) -> None:
    """Run loads from the pipe until None arrives."""
    while (load := pipe.recv()) is not None:
        pipe.send(asyncio.run(_drive(load)))


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def run_echo(pipe: Connection) -> None:
    """Serve the floor: echo every byte."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
