"""Agents and replays of a run over several shards, for tests."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from naive_replay import DEADLINE_S, wait_until

from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay import FIFOReplay, Replay, UniformReplay


class Agent:
    """Sends an endless episode; the reward of step i is i + 1000000 * the agent's number, and so is its observation."""

    def __init__(self, shards: ReplayShards, number: int, **options: Any) -> None:
        options = {"chunk_steps": 10, "max_delay_s": 60.0, "wait_timeout_s": DEADLINE_S} | options
        self.sender = ExpSender(shards, shard=number % len(shards), **options)
        self.next = 1_000_000 * number

    def step(self, count: int) -> None:
        for _ in range(count):
            obs = np.array([self.next, -self.next], np.float64)
            self.sender.send([obs], 0, float(self.next), False)
            self.next += 1

    def flush(self) -> None:
        self.sender.flush()


def make_replay(stack: ExitStack, where: ReplayShards, kind: type[Replay] = UniformReplay, **options: Any) -> Any:
    if kind is not FIFOReplay:
        options = {"batch_size": 8, "start_size": 1, "prefetch": 1, "seed": 1} | options
    replay = kind(where, **options)
    stack.callback(replay.join)
    stack.callback(replay.stop)
    return replay


def fill(replay: Any, size: int) -> None:
    """Run the replay's two parts, without threads, until so many transitions are there."""

    def has_all() -> bool:
        replay.pointer_queue.enqueue_step()
        replay.step(timeout_s=0)
        return bool(len(replay) >= size)

    wait_until(has_all)


def rewards(replay: Any) -> list[int]:
    """Of all transitions that are alive, in the replay's order."""
    return [int(reward) for reward in replay.store.transitions.take("reward", np.array(replay.alive))]


def steps_of(shards: ReplayShards) -> list[int]:
    return [stream.counts().live_steps for stream in shards.streams()]
