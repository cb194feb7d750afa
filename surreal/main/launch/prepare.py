"""What `surreal run` was asked for, as far as it can be checked without what the configuration names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from surreal.config import Config, load_config
from surreal.config.schema.checkpoint import RUN_STORE
from surreal.distributed.connection.client import RedisClient
from surreal.errors import ConfigError
from surreal.main.process.run_folder import RUNS_FOLDER, RunFolder, new_run_id


@dataclass(frozen=True)
class RunOptions:
    """What `surreal run` was asked for."""

    source: str | None
    overrides: tuple[str, ...] = ()
    run: str | None = None
    run_dir: Path | None = None
    redis: str | None = None
    resume: bool = False
    offline: Path | None = None
    is_quiet: bool = False
    shows_progress: bool = True


@dataclass(frozen=True)
class PreparedRun:
    """What is decided before anything is started or written."""

    source: str  #: of the configuration
    overrides: tuple[str, ...]  #: of the configuration, those of offline training included
    config: Config
    run: str
    folder: RunFolder


def prepare(options: RunOptions) -> PreparedRun:
    """Load the configuration, and decide on the run's id and folder; nothing is written.

    Raises:
        ConfigError, CodecError: one clear sentence about what is wrong.
    """
    source = options.source
    if source is None:
        if not options.resume or options.run_dir is None:
            raise ConfigError("name a preset or a file, or resume a run with --resume --run-dir DIR")
        source = str(RunFolder(options.run_dir).config_path)
    if options.resume and options.run is None and options.run_dir is None:
        raise ConfigError("--resume needs the run to go on with: --run NAME or --run-dir DIR", key="--resume")
    overrides = options.overrides
    config = load_config(source, overrides)
    if options.offline is not None:
        from surreal.main.session.leading.offline import offline_settings  # brings Arrow

        overrides = (*overrides, *offline_settings(config, options.offline))
        config = load_config(source, overrides)
    if options.redis is not None:  # what is meant for a server of the run's own is refused
        load_config(source, (*overrides, f"redis.address={json.dumps(options.redis)}"))
    if config.replay.follow:
        where = config.source_of("replay.follow")
        raise ConfigError(
            f"replay.follow is true{f' ({where})' if where else ''}, but a run needs a learner that owns its replay; "
            "`surreal learner` starts one that follows, beside the run of another",
            key="replay.follow",
            source=where,
        )
    run = options.run
    if run is None and options.resume and options.run_dir is not None:
        run = RunFolder(options.run_dir).read_run() or options.run_dir.absolute().name
    run = run or new_run_id(config.name)
    try:
        RedisClient(run=run)
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    folder = RunFolder(options.run_dir or RUNS_FOLDER / run)
    has_places_elsewhere = any(store != RUN_STORE for store in config.checkpoint.stores)
    if options.resume and not folder.config_path.exists() and not has_places_elsewhere:  # else the check looks there
        raise ConfigError(f"{folder.path} holds no run to resume", key="--resume")
    if not options.resume:
        folder.require_new()
    return PreparedRun(source, overrides, config, run, folder)
