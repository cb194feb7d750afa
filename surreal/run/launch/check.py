"""The options of `surreal run`, and the check before a run begins that everything its configuration names exists.

    python -m surreal.run.launch.check [--resume RUN_DIR] SOURCE [OVERRIDE...]

That is another process, so the launcher imports neither torch nor the user's classes.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError, StoppedError
from surreal.base.system.command_line import read_command_line
from surreal.config import Config, add_python_path, load_config
from surreal.config.schema.learning import RUN_STORE
from surreal.distributed.connection.client import RedisClient
from surreal.run.launch.starting import Spawner
from surreal.run.launch.supervise import last_error_line
from surreal.run.process.ending import print_error
from surreal.run.process.finding import named_folder, require_folder
from surreal.run.process.run_folder import RUNS_FOLDER, RunFolder, new_run_id

_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True)
class RunOptions:
    """Options of `surreal run`."""

    source: str | None
    overrides: tuple[str, ...] = ()
    run: str | None = None
    run_dir: Path | None = None
    redis: str | None = None
    resume: bool = False
    offline: str | None = None
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
    """Load the configuration, and choose the run's id and folder, if the options make sense; writes nothing."""
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
        key = "replay.follow"
        problem = f"replay.follow is true{config.place_of(key)}, but a run needs a learner that owns its replay"
        advice = "`surreal learner` starts one that follows, next to another run"
        raise ConfigError(f"{problem}; {advice}", key=key, source=config.source_of(key))
    is_own_redis = options.redis is None and config.redis.address is None
    has_others = options.offline is not None or options.has_companions
    if is_own_redis and not has_others and not config.agent.count + config.rlx.servers:
        key = "agent.count"
        why = "nothing would act, because no agent elsewhere reaches the Redis that a run starts for itself"
        problem = f"agent.count is 0{config.place_of(key)}, and so is rlx.servers: {why}"
        advice = "raise one of them, or name a Redis that others reach, with --redis"
        raise ConfigError(f"{problem}; {advice}", key=key, source=config.source_of(key))
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
    """Find the folder of the resumed run; None if it may be only in other places, which a preset or file names."""
    if options.run_dir is not None:
        return options.run_dir
    if options.run is None:
        raise ConfigError("--resume needs the run to continue: --run NAME or --run-dir DIR", key="--resume")
    named = require_folder(options.run) if options.source is None else named_folder(options.run)
    return None if named is None else named.path


def check_apart(
    starter: Spawner,
    source: str,
    overrides: Sequence[str],
    *,
    resumed: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Check classes, their arguments and environments, and whether a run can be resumed, in another process."""
    arguments = [*(["--resume", str(resumed)] if resumed else []), "--", source, *overrides]
    with tempfile.TemporaryDirectory(prefix="surreal-check-") as folder:
        console = Path(folder) / "console"
        # Torch's optimizers make a compiler cache, which would stay in /tmp.
        process = starter.start(__name__, arguments, console=console, environment={"TORCHINDUCTOR_CACHE_DIR": folder})
        try:
            while process.poll() is None:
                if should_stop():
                    raise StoppedError("stopped before the run began")
                time.sleep(_POLL_INTERVAL_S)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if process.returncode != 0:
            raise ConfigError(last_error_line(console))


def check_only(options: RunOptions) -> str:
    """Check in this process, for `surreal run --check`; returns a sentence that says so."""
    from surreal.run.lockstep.check import check_run

    prepared = prepare(options)
    add_python_path(prepared.config.python_path)
    check_run(prepared.config, resumed=prepared.folder.path if options.resume else None)
    where = f"{prepared.run} in {prepared.folder.path}"
    return f"{prepared.config.name} can run, as {where}; nothing was started or written"


@dataclass(frozen=True)
class _CheckArguments:
    source: Annotated[str, typer.Argument()]
    overrides: Annotated[tuple[str, ...], typer.Argument()] = ()
    resume: Annotated[Path | None, typer.Option()] = None


def main(argv: Sequence[str]) -> int:
    """Run the check; returns the exit code."""
    arguments = read_command_line(_CheckArguments, argv, name=__name__)
    try:
        from surreal.run.lockstep.check import check_run

        config = load_config(arguments.source, arguments.overrides)
        add_python_path(config.python_path)
        check_run(config, resumed=arguments.resume)
    except Exception as error:
        print_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
