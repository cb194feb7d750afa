"""`Subject`: the run that is disturbed, and the Redis servers it uses; `join` finds a run in progress."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys, RunKeys
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.parameters.parts import part_keys
from surreal.distributed.telemetry.heartbeats import parse_heartbeats
from surreal.plugins.chaos.disturbances.failover import ReplicatedRedis
from surreal.plugins.chaos.disturbances.processes import MACHINE_KINDS, REDIS_KINDS, Kind
from surreal.plugins.chaos.disturbances.servers import MOST_BALLAST_BYTES, Machine
from surreal.plugins.chaos.observing import Life, read_lives
from surreal.run.process import registry
from surreal.run.process.finding import find_run
from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder


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
    replicas: ReplicatedRedis | None = None  #: the servers behind its address, if one is a replica
    is_own: bool = False  #: whether chaos started it

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
        if (kind is Kind.SHRINK and not self.is_own) or (kind is Kind.FAILOVER and self.replicas is None):
            return f"{self.name} was not started by `surreal chaos`, which does this to its own Redis only"
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
    machine: Machine | None = None  #: clock and disk of its processes, if they can be disturbed

    @property
    def run(self) -> str:
        return self.client.run

    def policies(self) -> list[PolicyKeys]:
        """Return the names under which its learner, or each of its parameter servers, publishes."""
        return part_keys(self.parameter_client, self.config.broadcast.policy, self.config.num_servers)

    def refusals(self, kind: Kind) -> list[str]:
        """Return the reasons why a kind of disturbance is impossible; empty if one of the servers allows it."""
        if kind is Kind.KILL and not self.can_kill:
            return ["no process would start its processes again: `surreal run` does, on the machine of its launcher"]
        if kind in MACHINE_KINDS and self.machine is None:
            return ["only the clock, the disk and the memory of a run that `surreal chaos` starts can be disturbed"]
        found = [server.refusal(kind) for server in self.servers]
        return found if all(found) else []


_TIMEOUT_S = 2.0


def join(run: str | None, *, address: str | None, run_dir: Path | None, stack: ExitStack) -> Subject:
    """Find a run in progress."""
    try:
        client = stack.enter_context(find_run(run, address=address, run_dir=run_dir))
    except ConfigError as error:
        if run is None:
            raise
        raise ConfigError(f"{run} is not a preset, a file or a run in progress: {error}") from error
    lives = [life for life in read_lives(client) if life.is_alive]
    if not lives:
        raise ConfigError(f"run {client.run} is over: none of its processes is alive", key="run")
    folder = RunFolder(run_dir or RUNS_FOLDER / client.run)
    is_here = folder.read_run() == client.run
    # The configuration in Redis has no addresses, because they may contain passwords.
    config = load_config(str(folder.config_path)) if is_here else registry.stored_config(client)
    named = [*config.replay_addresses, config.redis.parameter_address]
    found = [None if each is None else FoundAddress(each, address) for each in named]
    *replay_clients, parameter_client = (_connect(each, client, stack) for each in found)
    launcher = next((life for life in lives if life.name == "launcher" and life.is_here), None)
    clients = {id(each): each for each in (*replay_clients, parameter_client, client)}
    return Subject(
        title=f"run {client.run}",
        config=config,
        folder=folder.path if is_here else None,
        client=client,
        replay=ReplayShards(replay_clients, config.num_shards),
        parameter_client=parameter_client,
        servers=[_server(each, launcher) for each in clients.values()],
        is_new=False,
        can_kill=launcher is not None,
    )


def _connect(address: str | None, client: RedisClient, stack: ExitStack) -> RedisClient:
    if address is None:
        return client
    found = stack.enter_context(RedisClient(address, run=client.run, timeout_s=_TIMEOUT_S))
    found.check_server(timeout_s=_TIMEOUT_S)
    return found


def _server(client: RedisClient, launcher: Life | None) -> Server:
    def pid() -> int:
        info: Any = client.redis.info("server")
        return int(info["process_id"])

    def kill() -> int:
        number = pid()
        os.kill(number, signal.SIGKILL)
        return number

    can_kill = launcher is not None and _is_child(pid(), launcher)
    return Server(client, _keeps(client), kill if can_kill else None, lambda: None, is_exclusive=_is_exclusive(client))


def _keeps(client: RedisClient) -> Keeps:
    def text(value: str | bytes) -> str:
        return value.decode() if isinstance(value, bytes) else value

    try:
        found: Any = client.redis.config_get("append*")
    except RedisError:  # this user may not read settings
        return Keeps.NOTHING
    settings = {text(name): text(value) for name, value in found.items()}
    if settings.get("appendonly") != "yes":
        return Keeps.NOTHING
    return Keeps.ALL if settings.get("appendfsync") == "always" else Keeps.NEARLY_ALL


def _is_child(pid: int, launcher: Life) -> bool:
    """Whether a redis-server was started by the launcher, which then starts it again."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return "redis" in process.name() and launcher.pid in [parent.pid for parent in process.parents()]
    return False


def _is_exclusive(client: RedisClient) -> bool:
    """Whether no other living run uses a server, as far as it lists its runs."""
    for entry in registry.list_runs(client):
        beats: Any = client.redis.hvals(RunKeys(entry.run).processes) if entry.run != client.run else []
        if any(beat.is_alive() for beat in parse_heartbeats(beats, now_s=client.server_time_s())):
            return False
    return True
