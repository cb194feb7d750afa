"""Snapshots of a run, read from Redis without its processes."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.client import Pipeline

from surreal.base.errors import CodecError
from surreal.base.system.health import StartParts
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.experience.codec import segments_of
from surreal.distributed.experience.stream import Stream
from surreal.distributed.telemetry.heartbeats import Heartbeat, parse_heartbeats


class Segment(NamedTuple):
    """Consecutive steps of one environment in a chunk."""

    env_slot: int
    first_step: int  #: number of the first step in the episode
    own_steps: int


class Entry(NamedTuple):
    """A chunk in a stream."""

    sender: str  #: id of the sender's life
    sequence: int  #: number of the chunk at its sender
    own_steps: int
    segments: tuple[Segment, ...] = ()

    @property
    def chunk_id(self) -> str:
        return f"{self.sender}-{self.sequence}"


class ShardSight(NamedTuple):
    """A shard at one instant: its new entries, and the counts in Redis."""

    shard: int
    epoch: str  #: "" after Redis was emptied, until a process writes
    steps: int = 0  #: env steps
    chunks: int = 0  #: chunks that were appended in this epoch
    is_counted: bool = False  #: whether the owner has added the steps from before
    entries: tuple[Entry, ...] = ()  #: new entries, in order


class PolicySight(NamedTuple):
    """The published parameters of a policy."""

    policy: str
    epoch: str
    version: int
    publication: str  #: id of the publication


class Life(NamedTuple):
    """One life of a process, from its heartbeat."""

    id: str
    name: str
    role: str
    pid: int
    is_here: bool  #: whether it is on this machine
    is_alive: bool
    age_s: float
    version: int
    acknowledged_chunks: int
    acknowledged_steps: int
    dropped_chunks: int
    start: StartParts | None = None  #: durations of its start; None until it works


class Standing(NamedTuple):
    """Progress of a run; its numbers only grow, whatever happens to Redis."""

    steps: int  #: env steps that were appended while it was watched
    publications: int  #: sets of parameters that were published meanwhile
    lives: tuple[Life, ...] = ()  #: lives of processes in Redis

    def alive(self) -> dict[str, Life]:
        """Return the living processes by name; the newest life of each name."""
        return {life.name: life for life in sorted(self.lives, key=lambda life: -life.age_s) if life.is_alive}


def read_lives(client: RedisClient) -> tuple[Life, ...]:
    """Read all lives in Redis, including those that have ended.

    Raises:
        redis.RedisError: no answer.
    """
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.time()
    pipeline.hvals(client.run_keys.processes)
    (seconds, micros), beats = pipeline.execute()
    return tuple(_life(beat) for beat in parse_heartbeats(beats, now_s=seconds + micros / 1e6))


def _life(beat: Heartbeat) -> Life:
    names = [f"sender/{name}_total" for name in ("chunks", "steps", "dropped_chunks")]
    found = [beat.metrics.get(name, 0.0) for name in names]
    chunks, steps, dropped = (int(value) if math.isfinite(value) else 0 for value in found)
    parts = [beat.metrics.get(f"{beat.role}/start_{part}", math.nan) for part in StartParts._fields]
    start = StartParts(*parts) if all(map(math.isfinite, parts)) else None
    is_here = beat.host == socket.gethostname()
    process = (beat.id, beat.name, beat.role, beat.pid, is_here, beat.is_alive(), beat.age_s, beat.version)
    return Life(*process, chunks, steps, dropped, start)


_START = b"0-0"
_META = ("epoch", "steps", "chunks", "counted")
_PARAMS = ("epoch", "version", "id")


class ShardReader:
    """Follows one shard.

    Args:
        is_new: whether the run began while it is watched; otherwise entries before the first look are not read.
    """

    def __init__(self, stream: Stream, *, is_new: bool) -> None:
        self.stream = stream
        self._cursor: bytes | None = _START if is_new else None
        self._epoch = ""

    def ask(self, pipeline: Pipeline) -> None:
        """Add two commands to a transaction; `take` gets their answers."""
        pipeline.hmget(self.stream.keys.meta, _META)
        if self._cursor is None:
            pipeline.xrevrange(self.stream.keys.stream, count=1)
        else:
            pipeline.xread({self.stream.keys.stream: self._cursor})

    def rewind(self, replica: RedisClient) -> None:
        """Continue after the last entry of a replica that takes over: it may give lost entries' ids to others."""
        last: Any = replica.redis.xrevrange(self.stream.keys.stream, count=1)
        self._cursor = last[0][0] if last else _START

    def take(self, meta: Sequence[bytes | None], answer: Any) -> ShardSight | None:
        """Return a snapshot; None if Redis was emptied meanwhile, and the stream must be read from its start."""
        epoch = (meta[0] or b"").decode()
        if self._cursor is None:  # earlier entries do not matter
            self._cursor, self._epoch = (answer[0][0] if answer else _START), epoch
            return self._sight(meta, ())
        if epoch != self._epoch:
            self._epoch, cursor = epoch, self._cursor
            # A cursor ahead of the clock would read nothing forever.
            self._cursor = _START
            if epoch and cursor != _START:
                return None
        entries = answer[0][1] if answer and epoch else []
        if entries:
            self._cursor = entries[-1][0]
        return self._sight(meta, tuple(_entry(fields) for _, fields in entries))

    def _sight(self, meta: Sequence[bytes | None], entries: tuple[Entry, ...]) -> ShardSight:
        epoch, steps, chunks, counted = meta
        number = self.stream.shard
        return ShardSight(number, (epoch or b"").decode(), int(steps or 0), int(chunks or 0), bool(counted), entries)


class Reader:
    """Follows all shards and parameters of a run."""

    def __init__(
        self, streams: Sequence[Stream], parameters: RedisClient, policies: Sequence[PolicyKeys], *, is_new: bool
    ) -> None:
        self._shards: dict[int, list[ShardReader]] = {}
        self.clients = list({id(stream.client): stream.client for stream in streams}.values())
        for stream in streams:
            self._shards.setdefault(id(stream.client), []).append(ShardReader(stream, is_new=is_new))
        self._parameters = parameters
        self._policies = policies

    def shards(self, client: RedisClient, and_then: Callable[[Pipeline], object] | None = None) -> list[ShardSight]:
        """Read the shards of one of `clients`, all at the same instant; `and_then` adds commands to the transaction's
        end.

        Raises:
            redis.RedisError: no answer; whether anything was done is not known.
        """
        left, sights = self._shards.get(id(client), []), list[ShardSight]()
        while True:
            pipeline = client.redis.pipeline()
            for shard in left:
                shard.ask(pipeline)
            if and_then is not None:
                and_then(pipeline)
            answers = pipeline.execute()
            found = [shard.take(*answers[2 * number : 2 * number + 2]) for number, shard in enumerate(left)]
            sights += [sight for sight in found if sight is not None]
            left = [shard for shard, sight in zip(left, found, strict=True) if sight is None]
            if not left:
                return sights
            and_then = None  # only once

    def rewind(self, client: RedisClient, replica: RedisClient) -> None:
        """Continue with what a replica of one server has, which takes over now.

        Raises:
            redis.RedisError: no answer.
        """
        for shard in self._shards.get(id(client), []):
            shard.rewind(replica)

    def policies(self) -> list[PolicySight]:
        """Read the published parameters.

        Raises:
            redis.RedisError: no answer.
        """
        pipeline = self._parameters.redis.pipeline(transaction=False)
        for keys in self._policies:
            pipeline.hmget(keys.params, _PARAMS)
        found = zip(self._policies, pipeline.execute(), strict=True)
        return [
            PolicySight(keys.policy, (epoch or b"").decode(), int(version), (publication or b"").decode())
            for keys, (epoch, version, publication) in found
            if version
        ]


def _entry(fields: dict[bytes, bytes]) -> Entry:
    """Decode the chunk of an entry; an unreadable one has no steps, so the counts will differ."""
    sender, _, sequence = fields.get(b"id", b"").decode("ascii", "replace").rpartition("-")
    found: tuple[Segment, ...] = ()
    with suppress(CodecError):
        segments = segments_of(fields.get(b"head", b""))
        found = tuple(Segment(env_slot, first, own) for _, own, env_slot, first, _ in segments)
    return Entry(sender, int(sequence) if sequence.isdigit() else 0, sum(each.own_steps for each in found), found)
