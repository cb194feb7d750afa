"""Compute the table of docs/scaling.md: how a run grows with its agents, from the code and from measurements.

    python -m benchmarks.scaling

Bytes a step come from the codec: chunks are encoded as agents send them. `MEASURED` has the capacity of one server, one
learner and one network card; the values come from `python -m benchmarks.fleet` and from other pages. A unit test
compares the page with this output.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks.chunks import CARTPOLE, prepare_chunk

#: Env steps a second of one agent process.
AGENT_STEPS_S = 1000
AGENTS = (10, 100, 1000)
#: Share of the measured capacity to plan with: clocks, forks and other programs take the rest.
HEADROOM = 0.5


class Measured(NamedTuple):
    """The capacity of one server and one network card, on the machine that docs/scaling.md names."""

    server_chunks_s: float  #: append calls of many agents, 10 kB each, on the core of one Redis server
    server_bytes_s: float  #: incoming experience with frames at one Redis server
    broadcast_bytes_s: float  #: outgoing parameters on the core of one Redis server
    network_bytes_s: float  #: nominal rate of a network card of 10 Gbit/s


MEASURED = Measured(server_chunks_s=12_500, server_bytes_s=700e6, broadcast_bytes_s=1.1e9, network_bytes_s=1.25e9)


class Task(NamedTuple):
    """The experience that agents send, and the parameters that they receive."""

    name: str
    chunk: dict[str, Any]  #: see `prepare_chunk`
    intake_steps_s: float  #: read, decoded and inserted by one learner process (docs/replay.md, "Surreal, fill")
    parameters_bytes: float

    def bytes_a_step(self) -> float:
        """Bytes of experience for each env step, on the network and in Redis."""
        _, chunk = prepare_chunk(**self.chunk)
        return (chunk.content_bytes + len(chunk.head)) / chunk.own_steps

    @property
    def steps_a_chunk(self) -> int:
        return int(self.chunk["chunk_steps"])


TASKS = (
    Task("4 floats", CARTPOLE, intake_steps_s=12e6, parameters_bytes=4 * 17_410),
    Task(
        "84x84 frames",
        {"shape": (84, 84), "dtype": np.uint8, "num_envs": 8, "chunk_steps": 544},
        intake_steps_s=115e3,
        parameters_bytes=4 * 1_687_206,
    ),
)


class Plan(NamedTuple):
    """The resources that a number of agents needs."""

    steps_s: float
    bytes_s: float  #: experience
    chunks_s: float
    shards: int  #: Redis servers for experience
    ranks: int  #: learner processes that read the experience
    cards: int  #: network cards for the experience
    broadcast_interval_s: float  #: shortest interval at which one server can send each version to every agent


def plan(task: Task, agents: int, measured: Measured = MEASURED) -> Plan:
    """Compute the resources for this number of agents."""
    steps_s = float(agents * AGENT_STEPS_S)
    bytes_s, chunks_s = steps_s * task.bytes_a_step(), steps_s / task.steps_a_chunk
    given_s = HEADROOM * min(measured.broadcast_bytes_s, measured.network_bytes_s)

    def number(load: float, capacity: float) -> int:
        return max(1, math.ceil(load / (HEADROOM * capacity)))

    return Plan(
        steps_s,
        bytes_s,
        chunks_s,
        # Experience arrives from agents, and leaves to the learner.
        max(number(chunks_s, measured.server_chunks_s), number(2 * bytes_s, measured.server_bytes_s)),
        number(steps_s, task.intake_steps_s),
        number(bytes_s, measured.network_bytes_s),
        agents * task.parameters_bytes / given_s,
    )


def render() -> str:
    """Render the tables."""
    lines = ["| observation | env steps per chunk | bytes per step | share of the observation |", "|---|---|---|---|"]
    for task in TASKS:
        row = int(np.prod(task.chunk["shape"])) * np.dtype(task.chunk["dtype"]).itemsize
        size = task.bytes_a_step()
        lines.append(f"| {task.name} | {task.steps_a_chunk} | {size:,.0f} | {row / size:.0%} |")
    lines += [
        "",
        "| agents | env steps/s | observation | experience | chunks/s | replay servers | 10 Gbit/s cards "
        "| learner ranks | minimum time between versions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for agents in AGENTS:
        for task in TASKS:
            found = plan(task, agents)
            lines.append(
                f"| {agents:,} | {found.steps_s:,.0f} | {task.name} | {found.bytes_s / 1e6:,.1f} MB/s "
                f"| {found.chunks_s:,.0f} | {found.shards} | {found.cards} | {found.ranks} "
                f"| {found.broadcast_interval_s:.2g} s |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
