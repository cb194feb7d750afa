"""What is seen of a run at one moment; made by the reader, judged by `invariants`."""

from __future__ import annotations

from typing import NamedTuple

from surreal.base.liveness.health import StartParts


class Segment(NamedTuple):
    """Consecutive steps of one environment, as a chunk's head tells of them."""

    env_slot: int
    first_step: int  #: its number in the episode
    own_steps: int


class Entry(NamedTuple):
    """A chunk in a stream."""

    sender: str  #: incarnation
    sequence: int  #: number of the chunk among its sender's
    own_steps: int
    segments: tuple[Segment, ...] = ()

    @property
    def chunk_id(self) -> str:
        """As Redis has it."""
        return f"{self.sender}-{self.sequence}"


class ShardSight(NamedTuple):
    """A shard at one instant: what came since the last look, and what Redis counts."""

    shard: int
    epoch: str  #: "" while there is none: Redis was emptied, and nobody has written since
    steps: int = 0  #: env steps
    chunks: int = 0  #: appended in this epoch
    is_counted: bool = False  #: whether the owner has added what it knew from before
    entries: tuple[Entry, ...] = ()  #: that were not seen before, in order


class PolicySight(NamedTuple):
    """What is published under a policy's name."""

    policy: str
    epoch: str
    version: int
    publication: str  #: id of the publication


class Life(NamedTuple):
    """One life of a process, as its heartbeat says."""

    id: str
    name: str
    role: str
    pid: int
    is_here: bool  #: on this machine
    is_alive: bool
    age_s: float
    version: int
    acknowledged_chunks: int
    acknowledged_steps: int
    dropped_chunks: int
    start: StartParts | None = None  #: how long it took until it worked; None before that


class Standing(NamedTuple):
    """How far a run is; all of it only ever grows, whatever happens to Redis."""

    steps: int  #: env steps that were appended while it was watched
    publications: int  #: sets of parameters that were published meanwhile
    lives: tuple[Life, ...] = ()  #: that Redis knows of

    def alive(self) -> dict[str, Life]:
        """Those that are alive, by name; of two lives of one name the newer."""
        found: dict[str, Life] = {}
        for life in sorted(self.lives, key=lambda life: -life.age_s):
            if life.is_alive:
                found[life.name] = life
        return found
