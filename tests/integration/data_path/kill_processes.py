"""Learners and agents in processes of their own, for tests that kill them: what runs there, and how it is started.

A process ends only by being killed. It can be told to stop short at a moment, inside of a method: then its thread
blocks there for ever, says so, and the test kills it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from naive_replay import DEADLINE_S, NaiveReplay, Walker, names_of

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.replay import FIFOReplay, PrioritizedReplay, UniformReplay

#: Where a process may be stopped: class and method.
PLACES: dict[str, tuple[Any, str]] = {
    "insert": (PrioritizedReplay, "_insert"),
    "evict": (PrioritizedReplay, "_evict"),
    "sample": (PrioritizedReplay, "_sample"),
    "aggregate": (PrioritizedReplay, "aggregate_batch"),
    "update": (PrioritizedReplay, "_apply_updates"),
    "tick": (Stream, "tick"),
    "save": (os, "replace"),
    "fifo insert": (FIFOReplay, "_insert"),
    "fifo batch": (FIFOReplay, "_sample"),
    "fifo gather": (FIFOReplay, "aggregate_batch"),
    "fifo settle": (FIFOReplay, "_settle"),
    "fifo commit": (FIFOReplay, "commit"),
}

# Children are forked from a process that has imported everything, so that each starts at once.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "surreal.replay", "surreal.distributed.experience.sender"])


class Killable:
    """A running process that does `work(pipe, *args)`, which says "up" first."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=work, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()
        self.expect("up")

    def expect(self, wanted: str) -> list[Any]:
        """Wait until it says so; returns what it said before."""
        said = []
        while True:
            assert self.pipe.poll(DEADLINE_S), f"it did not say {wanted!r}, but {said[-5:]}"
            word = self.pipe.recv()
            if word == wanted:
                return said
            said.append(word)

    def heard(self) -> list[Any]:
        """What it has said since it was asked last."""
        said = []
        while self.pipe.poll(0):
            said.append(self.pipe.recv())
        return said

    def kill(self) -> list[Any]:
        """SIGKILL; returns what it had said."""
        self.process.kill()
        self.process.join(DEADLINE_S)
        assert self.process.exitcode is not None
        said = []
        while True:
            try:
                said.append(self.pipe.recv())
            except (EOFError, OSError):  # the end, or the end in the middle of a word
                return said


@contextmanager
def killable(work: Callable[..., None], *args: Any) -> Iterator[Killable]:
    """Start a process; it is killed at the end, if it was not before."""
    started = Killable(work, *args)
    try:
        yield started
    finally:
        if started.process.is_alive():
            started.kill()


class Teller:
    """The other end of the pipe, for several threads."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self.say("up")

    def say(self, word: Any) -> None:
        with self._lock:
            self._pipe.send(word)


def stop_short(teller: Teller, moment: str | None, go: threading.Event) -> None:
    """Have this process block for ever at a moment such as "before insert", the first time after `go` was set.

    At "tick" only those count that remove or mark chunks.
    """
    if moment is None:
        return
    when, _, place = moment.partition(" ")
    owner, name = PLACES[place]
    original = getattr(owner, name)
    forever = threading.Event()

    @wraps(original)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        is_it = go.is_set() and (place != "tick" or bool(kwargs.get("evict") or kwargs.get("marks")))
        result = original(*args, **kwargs) if when == "after" or not is_it else None
        if is_it:
            teller.say("stopped short")
            forever.wait()
        return result

    setattr(owner, name, stopping)


def learn_prioritized(
    pipe: Connection, address: str, run: str, path: Path, moment: str | None, options: dict[str, Any]
) -> None:
    """A learner with priorities, which it saves all the time; says "busy" when its replay is full and it has saved."""
    teller, go = Teller(pipe), threading.Event()
    options = options.copy()
    replay = PrioritizedReplay(ReplayShards(RedisClient(address, run=run), options.pop("num_shards", 1)), **options)
    if path.exists():
        replay.load_priorities(path)
    stop_short(teller, moment, go)
    replay.start_threads()
    for i, batch in replay.batch_iterator():
        replay.update_priorities(batch.sample_info, replay.rng.random(len(batch.reward)) * 5)
        if i % 10 == 9:
            replay.save_priorities(path)
            if not go.is_set() and replay.metrics()["replay/evicted_chunks_total"] >= 3:
                teller.say("busy")
                go.set()


def learn_fifo(pipe: Connection, address: str, run: str, moment: str | None, options: dict[str, Any]) -> None:
    """A learner that consumes: tells the names of the steps of each batch, and commits after every third one.

    It takes its time, so that the next batch is always made, and not handed out, when it dies.
    """
    teller, go, thinking = Teller(pipe), threading.Event(), threading.Event()
    replay = FIFOReplay(RedisClient(address, run=run), **options)
    stop_short(teller, moment, go)
    replay.start_threads()
    for i, batch in replay.batch_iterator():
        is_step = batch.mask.numpy() > 0
        names = np.array([names_of([row.numpy()]) for row in batch.obs[:-1]])
        teller.say([names[is_step[:, column], column].tolist() for column in range(is_step.shape[1])])
        thinking.wait(0.003)
        if i % 3 == 2:
            replay.commit(version=i)
        if i == 5:
            teller.say("busy")
            go.set()


def learn_limited(
    pipe: Connection, address: str, run: str, pause_s: float, checkpoint: dict[str, Any] | None, options: dict[str, Any]
) -> None:
    """A learner whose replay has a limiter; tells how many samples it gets, and thinks about each batch for a while."""
    teller, thinking = Teller(pipe), threading.Event()
    replay = UniformReplay(RedisClient(address, run=run), **options)
    if checkpoint is not None:
        replay.load_state_dict(checkpoint)
    replay.start_threads()
    for _, batch in replay.batch_iterator():
        teller.say(len(batch.reward))
        if pause_s:
            thinking.wait(pause_s)


def act_limited(pipe: Connection, address: str, run: str, begin: int, pause_s: float, chunk_steps: int) -> None:
    """An agent that the limiter holds back; tells how often it had to wait so far, and pauses after each chunk."""
    teller, acting = Teller(pipe), threading.Event()
    sender = ExpSender(
        RedisClient(address, run=run), chunk_steps=chunk_steps, max_delay_s=60.0, wait_timeout_s=60.0, is_limited=True
    )
    walker = Walker(NaiveReplay(1, 0.5), begin=begin)
    while True:
        walker.naive.episodes = [[]]
        walker.walk(sender, chunk_steps)
        teller.say(int(sender.metrics()["sender/waits_total"]))
        if pause_s:
            acting.wait(pause_s)
