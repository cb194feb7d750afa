"""`Subject`: the run that is disturbed, and the Redis servers it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.parameters.published import part_keys
from surreal.plugins.chaos.disturbances.processes import REDIS_KINDS, Kind
from surreal.plugins.chaos.disturbances.servers import MOST_BALLAST_BYTES


class Keeps(Enum):
    """The data that a server keeps when it is killed and started again."""

    ALL = "all acknowledged data"  #: append-only file, synced with each command
    NEARLY_ALL = "all but the last second or two"  #: append-only file, synced less often
    NOTHING = "nothing"


@dataclass(frozen=True)
class Server:
    """A Redis server of the run."""

    client: RedisClient  #: client of the run, at this server
    keeps: Keeps
    kill: Callable[[], int] | None  #: kills it, and returns its process id; None: no process would start it again
    start: Callable[[], object]  #: starts it, or does nothing if the run's launcher does
    is_exclusive: bool  #: whether no other living run uses it

    @property
    def name(self) -> str:
        """Its address, without a password."""
        return self.client.address

    def refusal(self, kind: Kind) -> str:
        """Return the reason why a kind of disturbance is not possible here; "" if it is possible."""
        if kind not in (*REDIS_KINDS, Kind.CUT):
            return ""
        if self.client.is_cluster:
            return f"{self.name} is a Redis Cluster, which is not disturbed"
        is_shared = not self.is_exclusive
        if kind is Kind.CUT and is_shared and self.name.startswith("unix:"):
            return f"other runs are connected to {self.name}, too, and their connections cannot be told apart"
        if kind is Kind.RESTART:
            if is_shared:
                return f"other runs use {self.name}, too"
            return "" if self.kill else f"no process would start {self.name} again: the run did not start it"
        if kind is Kind.FULL:
            return f"other runs use {self.name}, too" if is_shared else self._refusal_of_filling()
        return ""

    def _refusal_of_filling(self) -> str:
        limit = int(self.client.redis.info("memory")["maxmemory"])
        if not limit:
            return f"{self.name} has no maxmemory, so it is never full"
        if limit > MOST_BALLAST_BYTES:
            return f"{self.name} may take {limit >> 20} MiB; to fill more than {MOST_BALLAST_BYTES >> 20} is too much"
        return ""


@dataclass(frozen=True)
class Subject:
    """A run, started here or joined."""

    title: str  #: name in the output
    config: Config
    folder: Path | None  #: None if it is elsewhere
    client: RedisClient  #: for configuration and heartbeats
    replay: ReplayShards
    parameter_client: RedisClient
    servers: Sequence[Server]  #: each once
    is_new: bool  #: whether it began while it is watched
    can_kill: bool  #: whether a launcher restarts its processes

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.client.run

    def policies(self) -> list[PolicyKeys]:
        """Return the names under which its learner, or each of its parameter servers, publishes."""
        return part_keys(self.parameter_client, self.config.broadcast.policy, self.config.num_servers)

    def refusals(self, kind: Kind) -> list[str]:
        """Return the reasons why a kind of disturbance is impossible; empty if one of the servers allows it."""
        if kind is Kind.KILL and not self.can_kill:
            return ["no process would start its processes again: `surreal run` does, on the machine of its launcher"]
        found = [server.refusal(kind) for server in self.servers]
        return found if all(found) else []
