"""Whether there is what a configuration names, found out in a process of its own before a run begins.

    python -m surreal.main.launch.check SOURCE [OVERRIDE...]

So the launcher needs neither torch nor the user's classes, and what those do when they are imported is not done to it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from surreal.config import add_python_path, load_config
from surreal.errors import ConfigError, StoppedError
from surreal.main.launch.starting.starter import Starter
from surreal.main.launch.supervise import last_error_line
from surreal.main.process.reports import print_error

_POLL_INTERVAL_S = 0.02


def check_apart(
    starter: Starter, source: str, overrides: Sequence[str], *, should_abort: Callable[[], bool] = lambda: False
) -> None:
    """Check classes, their arguments and environments.

    Args:
        starter: starts the process.
        source: of the configuration, which has been loaded already.
        overrides: of the configuration.
        should_abort: asked while waiting: what an environment does when it is made may take for ever.

    Raises:
        ConfigError: with what the check found.
        StoppedError: `should_abort` said so.
    """
    with tempfile.TemporaryDirectory(prefix="surreal-check-") as folder:
        console = Path(folder) / "console"
        process = starter.start(__name__, [source, *overrides], console=console, environment={})
        while process.poll() is None:
            if should_abort():
                process.send_signal(signal.SIGKILL)
                process.wait()
                raise StoppedError("interrupted while the configuration was checked")
            time.sleep(_POLL_INTERVAL_S)
        if process.returncode != 0:
            raise ConfigError(last_error_line(console))


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit code."""
    source, *overrides = sys.argv[1:] if argv is None else argv
    try:
        from surreal.main.build.check import check_run

        config = load_config(source, overrides)
        add_python_path(config.python_path)
        check_run(config)
    except Exception as error:
        print_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
