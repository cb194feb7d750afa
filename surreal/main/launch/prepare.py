"""What `surreal run` was asked for, checked before anything is started or written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surreal.config import Config, add_python_path, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.errors import ConfigError
from surreal.main.build.check import check_names
from surreal.main.launch.run_folder import RUNS_FOLDER, RunFolder, new_run_id
from surreal.main.offline import load_offline_config


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


def prepare(options: RunOptions) -> tuple[Config, str, RunFolder]:
    """Load the configuration, check what it names, and decide on the run's id and folder; nothing is written.

    Raises:
        ConfigError, EnvError: one clear sentence about what is wrong.
    """
    source = options.source
    if source is None:
        if not options.resume or options.run_dir is None:
            raise ConfigError("name a preset or a file, or resume a run with --resume --run-dir DIR")
        source = str(RunFolder(options.run_dir).config_path)
    if options.resume and options.run is None and options.run_dir is None:
        raise ConfigError("--resume needs the run to go on with: --run NAME or --run-dir DIR", key="--resume")
    config = load_config(source, options.overrides)
    if options.offline is not None:
        config = load_offline_config(source, options.overrides, options.offline)
    if config.replay.follow:
        where = config.source_of("replay.follow")
        raise ConfigError(
            f"replay.follow is true{f' ({where})' if where else ''}, but a run needs a learner that owns its replay; "
            "`surreal learner` starts one that follows, beside the run of another",
            key="replay.follow",
            source=where,
        )
    add_python_path(config.python_path)
    check_names(config)
    run = options.run or (options.run_dir.absolute().name if options.resume and options.run_dir else None)
    run = run or new_run_id(config.name)
    try:
        RedisClient(run=run)
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    folder = RunFolder(options.run_dir or RUNS_FOLDER / run)
    if options.resume and not folder.config_path.exists():
        raise ConfigError(f"{folder.path} holds no run to resume", key="--resume")
    return config, run, folder
