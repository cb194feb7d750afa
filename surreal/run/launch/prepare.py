"""The options of `surreal run`, checked as far as possible without the classes that the configuration names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.config.schema.learning import RUN_STORE
from surreal.distributed.connection.client import RedisClient
from surreal.run.process.finding import named_folder, require_folder
from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder, new_run_id


@dataclass(frozen=True)
class RunOptions:
    """Options of `surreal run`."""

    source: str | None
    overrides: tuple[str, ...] = ()
    run: str | None = None
    run_dir: Path | None = None
    redis: str | None = None
    resume: bool = False
    offline: Path | None = None
    is_quiet: bool = False
    shows_progress: bool = True
    has_companions: bool = False  #: whether RLX servers will join from other commands on this machine


@dataclass(frozen=True)
class PreparedRun:
    """Decisions before anything is started or written."""

    source: str  #: of the configuration
    overrides: tuple[str, ...]  #: of the configuration, including those of offline training
    config: Config
    run: str
    folder: RunFolder


def prepare(options: RunOptions) -> PreparedRun:
    """Load the configuration, and choose the run's id and folder; nothing is written.

    Raises:
        ConfigError, CodecError: the options make no sense.
    """
    source, run_dir = options.source, _resumed_folder(options) if options.resume else options.run_dir
    if source is None:
        if not options.resume or run_dir is None:
            raise ConfigError("name a preset or a file, or resume a run with --resume --run NAME")
        source = str(RunFolder(run_dir).config_path)
    overrides = options.overrides
    config = load_config(source, overrides)
    if options.offline is not None:
        from surreal.run.session.offline import offline_settings  # brings Arrow

        overrides = (*overrides, *offline_settings(config, options.offline))
        config = load_config(source, overrides)
    if options.redis is not None:  # refuses settings for a run's own server
        load_config(source, (*overrides, f"redis.address={json.dumps(options.redis)}"))
    if config.replay.follow:
        where = config.source_of("replay.follow")
        raise ConfigError(
            f"replay.follow is true{f' ({where})' if where else ''}, but a run needs a learner that owns its replay; "
            "`surreal learner` starts one that follows, next to another run",
            key="replay.follow",
            source=where,
        )
    is_own_redis = options.redis is None and config.redis.address is None
    has_others = options.offline is not None or options.has_companions
    if is_own_redis and not has_others and not config.agent.count + config.rlx.servers:
        where = config.source_of("agent.count")
        raise ConfigError(
            f"agent.count is 0{f' ({where})' if where else ''}, and so is rlx.servers: nothing would act, because no "
            "agent elsewhere reaches the Redis that a run starts for itself; raise one of them, or name a Redis that "
            "others reach, with --redis",
            key="agent.count",
            source=where,
        )
    run = options.run
    if options.resume and run_dir is not None and (run is None or options.run_dir is None):
        run = RunFolder(run_dir).read_run() or run_dir.absolute().name
    run = run or new_run_id(config.name)
    try:
        RedisClient(run=run)
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    folder = RunFolder(run_dir or RUNS_FOLDER / run)
    has_places_elsewhere = any(store != RUN_STORE for store in config.checkpoint.stores)
    if options.resume and not folder.config_path.exists() and not has_places_elsewhere:  # else the check looks there
        raise ConfigError(f"{folder.path} holds no run to resume", key="--resume")
    if not options.resume:
        folder.require_new()
    return PreparedRun(source, overrides, config, run, folder)


def _resumed_folder(options: RunOptions) -> Path | None:
    """Find the folder of the resumed run; None if it may be only in other places, which a preset or file names.

    Raises:
        ConfigError: no run is named, or no run has this name.
    """
    if options.run_dir is not None:
        return options.run_dir
    if options.run is None:
        raise ConfigError("--resume needs the run to continue: --run NAME or --run-dir DIR", key="--resume")
    named = require_folder(options.run) if options.source is None else named_folder(options.run)
    return None if named is None else named.path
