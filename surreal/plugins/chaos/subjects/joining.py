"""`join`: finds a run in progress on this machine, like `surreal status`."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RunKeys
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.telemetry.heartbeats import parse_heartbeats
from surreal.plugins.chaos.observing import Life, read_lives
from surreal.plugins.chaos.subjects.subject import Keeps, Server, Subject
from surreal.run.process import registry
from surreal.run.process.finding import find_run
from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder

_TIMEOUT_S = 2.0


def join(run: str | None, *, address: str | None, run_dir: Path | None, stack: ExitStack) -> Subject:
    """Find a run in progress.

    Raises:
        ConfigError: the run does not exist, or is over.
        RedisUnavailableError: its Redis does not answer.
    """
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
