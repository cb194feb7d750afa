"""The subject of an examination: a run, a configuration, or only this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config, preset_names
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.finding import RunOverError, find_run, is_run_folder
from surreal.run.process.registry import stored_config
from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder, newest_running

#: The configuration in an app's folder.
APP_FILE = Path("app.yaml")
_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Subject:
    """The subject of an examination."""

    title: str  #: name in the output
    config: Config | None = None  #: configuration of the run, or the named one; None: none was named
    source: str | None = None  #: file or preset of the configuration, for another process; None: it is in a run's Redis
    overrides: tuple[str, ...] = ()  #: overrides of the configuration
    #: address of the named Redis; None: the configuration's, or a server that a run starts itself
    address: str | None = None
    run: str | None = None  #: a run in Redis; None: none was named
    folder: Path = RUNS_FOLDER  #: folder of the run, or of new runs
    #: whether the configuration was found in a run's folder, so that another user may have written it
    is_found: bool = False
    has_ended: bool = False  #: whether `folder` belongs to a run that has ended

    @property
    def addresses(self) -> list[str]:
        """All named servers, each once, the run's server first."""
        redis = None if self.config is None else self.config.redis
        replay = [] if self.config is None else self.config.replay_addresses
        named = [self.run_address, *replay, None if redis is None else redis.parameter_address]
        return list(dict.fromkeys(address for address in named if address is not None))

    @property
    def run_address(self) -> str | None:
        """Address of the server that all processes share; None: a run starts its own."""
        return self.address or (None if self.config is None else self.config.redis.address)

    def client(self, address: str) -> RedisClient:
        """Make a client with short timeouts; raises `ConfigError` if the address is not valid."""
        try:
            run = self.run or "default"
            if self.is_found and address != self.address:
                address = FoundAddress(address, self.address)
            return RedisClient(address, run=run, timeout_s=_TIMEOUT_S, retry_timeout_s=_TIMEOUT_S)
        except ValueError as error:
            raise ConfigError(str(error), key="--redis") from error


def find_subject(
    target: str | None, *, overrides: Sequence[str] = (), redis: str | None = None, run_dir: Path | None = None
) -> Subject:
    """Find the subject.

    Args:
        target: a preset, a YAML file, a run's id or its folder; None: the run in progress on this machine, else
            `app.yaml`, else only this machine and the named Redis.
        overrides: overrides of the configuration.
        redis: address of its Redis.
        run_dir: folder of the run.

    Raises:
        ConfigError: the target does not exist, or the configuration is wrong.
        RedisUnavailableError: the Redis of a run does not answer.
    """
    address = redis or os.environ.get(REDIS_VARIABLE)
    if target is not None and Path(target).is_dir():
        run_dir, target = Path(target), None
    is_file = target is not None and (Path(target).is_file() or target.endswith((".yaml", ".yml")))
    if target is not None and (is_file or target in preset_names()):
        return _configured(target, overrides, address, run_dir)
    if run_dir is not None and not is_run_folder(run_dir) and (run_dir / APP_FILE).is_file():  # an app's
        return _configured(str(run_dir / APP_FILE), overrides, address, run_dir)
    if target is not None or run_dir is not None or (address is None and newest_running() is not None):
        try:
            return _running(target, overrides, address, run_dir)
        except RunOverError as over:
            if target is not None or run_dir is not None:
                source, where = str(over.folder.config_path), over.folder.path
                title = f"run {over.folder.read_run() or where.name}, which has ended"
                config, given = load_config(source, overrides), tuple(overrides)
                return Subject(title, config, source, given, folder=where, is_found=True, has_ended=True)
    if APP_FILE.is_file():
        return _configured(str(APP_FILE), overrides, address, run_dir)
    if overrides:
        raise ConfigError("--set changes a configuration; name a preset or a file", key="--set")
    return Subject("this machine" if address is None else "this machine, and a Redis", address=address)


def _configured(source: str, overrides: Sequence[str], address: str | None, run_dir: Path | None) -> Subject:
    config = load_config(source, overrides)
    return Subject(source, config, source, tuple(overrides), address, folder=run_dir or RUNS_FOLDER)


def _running(target: str | None, overrides: Sequence[str], address: str | None, run_dir: Path | None) -> Subject:
    try:
        client = find_run(target, address=address, run_dir=run_dir)
    except RunOverError:
        raise
    except ConfigError as error:
        if target is None:
            raise
        raise ConfigError(f"{target} is not a preset, a file or a run: {error}") from error
    with client:
        config = stored_config(client, overrides)
        found = address or _address_in(run_dir or RUNS_FOLDER / client.run)
        folder = run_dir or RUNS_FOLDER / client.run
        return Subject(f"run {client.run}", config, None, tuple(overrides), found, client.run, folder)


def _address_in(folder: Path) -> str | None:
    found = RunFolder(folder).read_address()
    if found is None:
        newest = newest_running()
        found = None if newest is None else newest.read_address()
    return None if found is None else found[0]
