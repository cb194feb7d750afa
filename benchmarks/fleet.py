"""Measure many agents at one Redis server: fairness, lost chunks, and the cost of a connection.

    python -m benchmarks.fleet [--agents 200] [--rounds N] [--seconds S]

* appends: `--agents` connections, each with an `Outbox` as in an agent, send prepared chunks as fast as they are
  acknowledged. A replay in another process reads, inserts and evicts. The baseline is one connection that sends the
  same bytes as bare EVALSHA calls: one round trip each (`ratio`), and many at once (`ratio_pipelined`).
  No chunk may be dropped or sent twice, and the stream must count every acknowledged chunk.
* broadcast: MB/s at which two processes read parameters of 6.7 MB, the size of `atari-dqn`, as fast as they can.
* the server's CPU time for each append (`server_cpu_us`), and MB/s for each second of it (`a_core_of_the_server`).
  Redis serves on one core, so these show its capacity even if this machine is too busy to reach it.
* fairness: the slowest agent's chunks divided by the mean of all agents, over all rounds; aim 0.5.
* memory: bytes of the server for each idle connection, for the first half of the connections and for the second half.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from benchmarks.alone import alone
from benchmarks.chunks import CARTPOLE, prepare_chunk, store_bare
from benchmarks.harness import report
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Contract, EncodedChunk
from surreal.distributed.experience.outbox import Outbox
from surreal.distributed.experience.stream import Stream
from surreal.distributed.server.embedded import EmbeddedRedis

SPAWN = multiprocessing.get_context("spawn")
_CAPACITY = 50_000
_PROCESSES = 2
_AIM_FAIRNESS = 0.5
#: Size of the parameters of `atari-dqn`: 1,687,206 float32.
PARAMETERS_BYTES = 4 * 1_687_206


class Round(NamedTuple):
    """The agents' results in one round."""

    chunks: list[int]  #: acknowledged chunks of each agent
    dropped: int
    duplicates: int


class Fleet:
    """Connections of several agents, served in turn by one thread; each sends again once it was answered.

    Args:
        address: Address of the Redis server.
        run: The run's id.
        number: Number of agents.
        chunk: The chunk that all agents send, with its contract.
    """

    def __init__(self, address: str, run: str, number: int, chunk: tuple[Contract, EncodedChunk]) -> None:
        self.contract, self.chunk = chunk
        self._clients = [RedisClient(address, run=run) for _ in range(number)]
        self.outboxes = [
            Outbox(Stream(client), drops_when_full=False, max_stream_bytes=1 << 30) for client in self._clients
        ]

    def send(self, seconds: float) -> Round:
        """Send for `seconds`, and wait for all answers."""
        before = [outbox.metrics() for outbox in self.outboxes]
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            for outbox in self.outboxes:
                if not len(outbox) or outbox.has_answer:
                    outbox.put(self.contract, [self.chunk])
                    outbox.push(timeout_s=30.0, is_limited=False, waits_for_last=False)
        for outbox in self.outboxes:
            outbox.push(timeout_s=30.0, is_limited=False)
        after = [outbox.metrics() for outbox in self.outboxes]
        grown = {
            name: [
                int(new[f"sender/{name}_total"] - old[f"sender/{name}_total"])
                for old, new in zip(before, after, strict=True)
            ]
            for name in ("chunks", "dropped_chunks", "duplicates")
        }
        return Round(grown["chunks"], sum(grown["dropped_chunks"]), sum(grown["duplicates"]))

    def read(self, seconds: float) -> float:
        """Read parameters for `seconds`, and return bytes/s."""
        keys = self._clients[0].policy_keys()
        size, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            size += len(self._clients[0].execute("HGET", keys.params, "data"))
        return size / (time.perf_counter() - started_s)

    def close(self) -> None:
        for outbox, client in zip(self.outboxes, self._clients, strict=True):
            outbox.close()
            client.close()


def serve_fleet(address: str, run: str, number: int, pipe: Connection) -> None:
    """Run a part of the agents in this process; the pipe gives the seconds of each round."""
    fleet = Fleet(address, run, number, prepare_chunk(**CARTPOLE))
    pipe.send(fleet.send(0.0))
    while (asked := pipe.recv()) is not None:
        what, seconds = asked
        pipe.send(fleet.send(seconds) if what == "send" else fleet.read(seconds))
    fleet.close()


def read_forever(address: str, run: str, pipe: Connection) -> None:
    """Run a learner's replay that reads everything and evicts old chunks, but never samples."""
    import torch

    from surreal.replay import UniformReplay

    torch.set_num_threads(1)
    replay = UniformReplay(RedisClient(address, run=run), capacity=_CAPACITY, start_size=_CAPACITY)
    replay.start_threads()
    pipe.send(True)
    while not pipe.poll(0.1):
        replay.check()
    replay.stop()
    replay.join()


class Processes:
    """A few processes with the agents, and one with the learner."""

    def __init__(self, address: str, run: str, agents: int) -> None:
        shares = [len(share) for share in np.array_split(range(agents), _PROCESSES)]
        self._reader, reader_end = SPAWN.Pipe()
        self._children = [SPAWN.Process(target=read_forever, args=(address, run, reader_end), daemon=True)]
        self._fleets: list[Connection] = []
        for share in shares:
            ours, theirs = SPAWN.Pipe()
            self._fleets.append(ours)
            self._children.append(SPAWN.Process(target=serve_fleet, args=(address, run, share, theirs), daemon=True))
        for child in self._children:
            child.start()
        self._reader.recv()
        for fleet in self._fleets:
            fleet.recv()

    def send(self, seconds: float) -> Round:
        for fleet in self._fleets:
            fleet.send(("send", seconds))
        found: list[Round] = [fleet.recv() for fleet in self._fleets]
        chunks = [number for each in found for number in each.chunks]
        return Round(chunks, sum(each.dropped for each in found), sum(each.duplicates for each in found))

    def read(self, seconds: float) -> float:
        """Read parameters in all processes, and return their total bytes/s."""
        for fleet in self._fleets:
            fleet.send(("read", seconds))
        return float(sum(fleet.recv() for fleet in self._fleets))

    def close(self) -> None:
        for pipe in (*self._fleets, self._reader):
            pipe.send(None)
        for child in self._children:
            child.join(10)
            child.kill()


def fairness(rounds: Sequence[Round]) -> float:
    """Return the slowest agent's chunks divided by the mean of all agents."""
    chunks = np.sum([each.chunks for each in rounds], axis=0)
    return float(chunks.min() / chunks.mean())


def memory_a_connection(address: str, agents: int) -> dict[str, float]:
    """Return the server's bytes for each idle connection: of the first half, and of the second half."""
    client = RedisClient(address)

    def used() -> int:
        time.sleep(3.0)  # Redis takes back the buffers of clients that are idle for two seconds
        return int(client.redis.info("memory")["used_memory"])

    used_bytes, clients = [used()], []
    for _ in range(2):
        for _ in range(agents // 2):
            clients.append(RedisClient(address))
            clients[-1].ping()
        used_bytes.append(used())
    for each in clients:
        each.close()
    first, second = ((used_bytes[i + 1] - used_bytes[i]) / (agents // 2) for i in range(2))
    return {"first_half": round(first), "second_half": round(second)}


def cpu_s(client: RedisClient) -> float:
    """Return the server's CPU time so far, s, which limits its throughput."""
    used: Any = client.redis.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def measure(server: EmbeddedRedis, agents: int, rounds: int, seconds: float) -> None:
    path = server.address.removeprefix("unix://")
    client = RedisClient(server.address, run=f"fleet-{uuid.uuid4().hex[:8]}")
    emit("memory of a connection", "bytes", **memory_a_connection(server.address, agents), connections=agents)
    processes = Processes(server.address, client.run, agents)
    try:
        measure_appends(client, path, processes, agents, rounds, seconds)
        measure_broadcast(client, processes, rounds, seconds / 2)
    finally:
        processes.close()
        client.close()


def measure_appends(
    client: RedisClient, path: str, processes: Processes, agents: int, rounds: int, seconds: float
) -> None:
    _, chunk = prepare_chunk(**CARTPOLE)
    fleets, rates, single, pipelined, cpu = list[Round](), list[float](), list[float](), list[float](), list[float]()
    for number in range(rounds + 1):
        started_s, used_s = time.perf_counter(), cpu_s(client)
        found = processes.send(seconds)
        appended = sum(found.chunks)
        rate, each_s = appended / (time.perf_counter() - started_s), (cpu_s(client) - used_s) / appended
        bare = store_bare(path, chunk, 1, seconds / 2), store_bare(path, chunk, min(agents, 64), seconds / 2)
        fleets.append(found)
        if number:  # the first is a warm-up
            rates.append(rate)
            single.append(bare[0])
            pipelined.append(bare[1])
            cpu.append(1e6 * each_s)
    memory: Any = client.redis.info("memory")
    connections: Any = client.redis.info("clients")
    stored: Any = client.redis.hget(client.shard_keys().meta, "chunks")
    acknowledged = sum(sum(each.chunks) for each in fleets)
    ratios = [ours / theirs for ours, theirs in zip(rates, pipelined, strict=True)]
    report(
        f"appends of {agents} agents",
        "chunks/s",
        rates,
        single,
        aim=None,
        ratio_pipelined=round(statistics.median(ratios), 3),
        ratio_pipelined_range=[round(min(ratios), 3), round(max(ratios), 3)],
        server_cpu_us=round(statistics.median(cpu)),
        server_cpu_us_range=[round(min(cpu)), round(max(cpu))],
        steps_a_chunk=chunk.own_steps,
        bytes_a_chunk=chunk.content_bytes + len(chunk.head),
        dropped=sum(each.dropped for each in fleets),
        duplicates=sum(each.duplicates for each in fleets),
        acknowledged=acknowledged,
        stored=int(stored or 0),
    )
    emit("fairness", "slowest / mean", value=round(fairness(fleets), 3), aim=_AIM_FAIRNESS, chunks=acknowledged)
    number = connections["connected_clients"]
    emit("busy clients", "bytes", value=round(int(memory.get("mem_clients_normal", 0)) / number), connections=number)


def measure_broadcast(client: RedisClient, processes: Processes, rounds: int, seconds: float) -> None:
    client.redis.hset(client.policy_keys().params, "data", bytes(PARAMETERS_BYTES))
    rates, a_core = [], []
    for _ in range(rounds):
        used_s = cpu_s(client)
        rate = processes.read(seconds)
        rates.append(rate / 1e6)
        a_core.append(rate * seconds / 1e6 / max(cpu_s(client) - used_s, 1e-3))
    figures = {"value": round(statistics.median(rates)), "range": [round(min(rates)), round(max(rates))]}
    emit("broadcast", "MB/s", **figures, a_core_of_the_server=round(statistics.median(a_core)))


def emit(name: str, unit: str, **figures: Any) -> None:
    sys.stdout.write(json.dumps({"name": name, "unit": unit, **figures}) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    args = parser.parse_args()
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server:
        measure(server, args.agents, args.rounds, args.seconds)


if __name__ == "__main__":
    with alone():
        main()
