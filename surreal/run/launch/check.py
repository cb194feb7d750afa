"""Check that everything a configuration names exists, in another process before a run begins.

    python -m surreal.run.launch.check [--resume RUN_DIR] SOURCE [OVERRIDE...]

So the launcher imports neither torch nor the user's classes.
"""

from __future__ import annotations

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
from surreal.config import add_python_path, load_config
from surreal.run.launch.prepare import RunOptions, prepare
from surreal.run.launch.starting import Starter
from surreal.run.launch.supervise import last_error_line
from surreal.run.process.ending import print_error

_POLL_INTERVAL_S = 0.02


def check_apart(
    starter: Starter,
    source: str,
    overrides: Sequence[str],
    *,
    resumed: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Check classes, their arguments and environments, and whether a run can be resumed, in another process.

    Args:
        starter: starts the process.
        source: source of the configuration, which has been loaded already.
        overrides: overrides of the configuration.
        resumed: folder of a resumed run; None for a new one.
        should_stop: polled while waiting, because making an environment may take forever; true ends the check.

    Raises:
        ConfigError: the check found a problem.
        StoppedError: `should_stop` was true.
    """
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
    """Check in this process, for `surreal run --check`; returns a sentence that says so.

    Raises:
        SurrealError: the run is not possible.
    """
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
