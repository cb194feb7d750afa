"""Find a run's folder by path, name or id, and its Redis: one rule for all commands, also for runs that have ended."""

from __future__ import annotations

import logging
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from surreal.base.errors import ConfigError, RedisUnavailableError
from surreal.base.system.files import ADDRESS_VARIABLE
from surreal.base.system.process import is_process_alive
from surreal.config.problems import nearest
from surreal.run.process.run_folder import (
    ADDRESS_NAME,
    LOCK_NAME,
    RESULT_NAME,
    RUN_NAME,
    RUNS_FOLDER,
    RunFolder,
    newest_running,
    newest_with,
    read_result,
)

if TYPE_CHECKING:
    from surreal.config import Config
    from surreal.distributed.connection.client import RedisClient
    from surreal.distributed.experience.shards import ReplayShards
    from surreal.run.process.arguments import RoleArguments
    from surreal.run.process.roles import Role

logger = logging.getLogger(__name__)

#: Longest wait of a command for Redis, s.
_TIMEOUT_S = 5.0
#: A process that began this much later than the lock was taken is another one with the same id, s.
_CLOCK_SLACK_S = 2.0
#: How a run ended whose result says that it is in progress, unless its launcher is alive.
_KILLED = "its launcher was killed"


class RunOverError(ConfigError):
    """A command needs a run in progress, and this one has ended."""

    def __init__(self, folder: RunFolder) -> None:
        name = folder.path.name
        problem = f"run {folder.read_run() or name} is over ({_ending(folder.path)})"
        advice = f"`surreal status {name}` shows what it left, and `surreal play {name}` plays its policy"
        super().__init__(f"{problem}; {advice}", key="RUN")
        self.folder = folder


def named_folder(name: str | os.PathLike[str] | None, runs: Path = RUNS_FOLDER) -> RunFolder | None:
    """Find the folder of a run; None if there is no such run."""
    if name is None:
        running, newest = newest_running(runs), newest_with(RUN_NAME, runs)
        # A killed run leaves its address behind.
        return running if running is not None and (newest is None or is_written_to(running.path)) else newest
    for path in (Path(name).expanduser(), runs / name):
        if is_run_folder(path) or (path / ADDRESS_NAME).is_file():
            return RunFolder(path)
    found = (RunFolder(path.parent) for path in sorted(runs.glob(f"*/{RUN_NAME}")))
    return next((folder for folder in found if folder.read_run() == os.fspath(name)), None)


def require_folder(name: str | os.PathLike[str] | None, runs: Path = RUNS_FOLDER) -> RunFolder:
    """Find the folder of a run as `named_folder` does; raises `ConfigError` with the nearest name if there is none."""
    if (folder := named_folder(name, runs)) is not None:
        return folder
    known = sorted(path.parent.name for path in runs.glob(f"*/{RUN_NAME}"))
    if name is None:
        problem = f"there is no run below {runs}"
    else:
        similar = nearest(os.fspath(name), known)
        advice = f"did you mean {similar}?" if similar else f"{runs} has {', '.join(known[-5:]) or 'no run'}"
        problem = f"{os.fspath(name)} is not a run's folder, name or id below {runs}; {advice}"
    raise ConfigError(f"{problem}; --run-dir names a run's folder, and --redis its Redis", key="RUN")


def find_run(run: str | None, *, address: str | None, run_dir: Path | None, must_be_known: bool = True) -> RedisClient:
    """Find a run and its Redis: at an address, by its folder, or the newest one below `runs`. The run may be an id, the
    name of its folder below `runs`, or a path. If it need not be known, another server may list it. Raises
    `ConfigError` if there is no such run, or it has no Redis yet, `RunOverError` if it has ended.
    """
    from surreal.distributed.connection.retry import is_refused
    from surreal.run.process import registry

    given = address or os.environ.get(ADDRESS_VARIABLE)
    folder = named_folder(run_dir or run) if given is not None else require_folder(run_dir or run)
    address, run = find_address(run, address=given, run_dir=run_dir)
    client = open_client(address, run or "default")
    try:
        client.check_server(timeout_s=_TIMEOUT_S)
    except RedisUnavailableError as error:
        client.close()
        is_gone = error.__cause__ is None or not is_refused(error.__cause__)
        if is_gone and given is None and folder is not None and not is_written_to(folder.path):
            raise RunOverError(folder) from None  # it was killed with its Redis
        raise
    known = registry.list_runs(client)
    if run is None:
        client.close()
        if not known:
            raise ConfigError(f"Redis at {client.address} knows no run")
        return open_client(address, known[-1].run)
    if must_be_known and run not in [entry.run for entry in known]:
        client.close()
        if folder is not None and not is_written_to(folder.path):
            raise RunOverError(folder)
        names = ", ".join(entry.run for entry in known[-5:])
        raise ConfigError(f"Redis at {client.address} knows no run {run!r}; it knows {names or 'none'}", key="RUN")
    return client


def find_address(run: str | None, *, address: str | None, run_dir: Path | None) -> tuple[str, str | None]:
    """Find the address of a run's Redis, and the run's id if it is known; arguments as in `find_run`."""
    address = address or os.environ.get(ADDRESS_VARIABLE)
    if address is not None:
        folder = None if run is None and run_dir is None else named_folder(run_dir or run)
        found_run = None if folder is None else folder.read_run()
        return address, run if found_run is None or (run is not None and run_dir is not None) else found_run
    folder = require_folder(run_dir or run)
    found = folder.read_address()
    if found is None:
        if is_written_to(folder.path) and _ending(folder.path) == _KILLED:
            name = folder.read_run() or folder.path.name
            raise ConfigError(f"run {name} is starting: try again in a second", key="RUN")
        raise RunOverError(folder)
    # A name may be that of a folder, whose run may have another id.
    return found[0], run if run is not None and run_dir is not None else found[1]


def make_client(address: str, run: str, **options: Any) -> RedisClient:
    """Make a client of a run, with options of `RedisClient`."""
    from surreal.distributed.connection.client import RedisClient  # completion and lists of folders do not need it

    try:
        return RedisClient(address, run=run, **options)
    except ValueError as error:
        raise ConfigError(str(error), key="--redis") from error


def open_client(address: str, run: str = "default") -> RedisClient:
    """Make a client that does not wait long; see `make_client`."""
    return make_client(address, run, retry_timeout_s=_TIMEOUT_S)


def connect_role(role: Role, arguments: RoleArguments, stop: threading.Event) -> tuple[Config, RedisClient]:
    """Load the configuration of a role process, from here or from Redis, and connect to Redis."""
    from surreal.config import add_python_path, load_config
    from surreal.run.process import registry
    from surreal.run.process.arguments import DEFAULT_REDIS

    config = None if arguments.config is None else load_config(arguments.config, arguments.overrides)
    configured = None if config is None else config.redis.address
    run = arguments.run or (None if config is None else config.name)
    if run is None:
        raise ConfigError("name a configuration, or a run whose configuration is in Redis: --run NAME", key="--run")
    client = make_client(arguments.redis or configured or DEFAULT_REDIS, run)
    # A child that is restarted while Redis is away waits for it as long as running processes do.
    timeout_s = client.retry_timeout_s if arguments.supervised else arguments.connect_timeout_s
    client.check_server(timeout_s=timeout_s, stop=stop)
    if config is None:
        if role.leads and not arguments.index:  # it would wait for itself
            config = registry.stored_config(client, arguments.overrides)
        else:
            config = registry.wait_for_config(client, arguments.overrides, stop)
    add_python_path(config.python_path)
    return config, client


def connect_servers(
    config: Config, client: RedisClient, arguments: RoleArguments, stop: threading.Event
) -> tuple[ReplayShards, RedisClient]:
    """Connect to the replay servers, at least one of which must answer, and to the parameter server."""
    from surreal.distributed.experience.shards import ReplayShards

    def client_at(address: str | None) -> RedisClient:
        if address is None:
            return client
        other = make_client(address, client.run)
        other.check_server(timeout_s=arguments.connect_timeout_s, stop=stop)
        return other

    clients: list[RedisClient] = []
    missing: list[RedisUnavailableError] = []
    for address in config.replay_addresses:
        try:
            clients.append(client_at(address))
        except RedisUnavailableError as error:
            missing.append(error)
            if len(missing) == len(config.replay_addresses):
                raise
            logger.warning("continuing without a shard: %s", error)
            clients.append(make_client(address or "", client.run))
    return ReplayShards(clients, config.num_shards), client_at(config.redis.parameter_address)


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run's; an app's folder is not, although it also has an app.yaml."""
    return any((folder / name).is_file() for name in (RESULT_NAME, RUN_NAME))


def is_written_to(folder: Path) -> bool:
    """Whether the writer of a run's folder is alive; one on another machine counts as alive."""
    path = folder / LOCK_NAME
    try:
        words = path.read_text(errors="replace").split()
        taken = path.stat().st_mtime
    except OSError:
        return False
    if len(words) != 4 or not words[1].isdecimal():
        return False
    pid, host = int(words[1]), words[3]
    if host != socket.gethostname():
        return True
    if not is_process_alive(pid):
        return False
    try:
        return psutil.Process(pid).create_time() <= taken + _CLOCK_SLACK_S
    except psutil.Error:
        return False


def _ending(folder: Path) -> str:
    try:
        result = read_result(folder)
        status, reason = result["status"], result["reason"]
    except (OSError, ValueError, KeyError):
        return f"its {RESULT_NAME} does not contain its ending"
    return _KILLED if status == "running" else f"{status}: {reason}"
