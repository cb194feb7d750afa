"""Whether there is what a configuration names, found out in a process of its own before a run begins.

    python -m surreal.main.launch.check SOURCE [OVERRIDE...]

So the launcher needs neither torch nor the user's classes, and what those do when they are imported is not done to it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from surreal.config import add_python_path, load_config
from surreal.errors import ConfigError
from surreal.main.launch.starting.starter import Starter
from surreal.main.launch.supervise import last_error_line
from surreal.main.process.reports import print_error


def check_apart(starter: Starter, source: str, overrides: Sequence[str]) -> None:
    """Check classes, their arguments and environments.

    Args:
        starter: starts the process.
        source: of the configuration, which has been loaded already.
        overrides: of the configuration.

    Raises:
        ConfigError: with what the check found.
    """
    with tempfile.TemporaryDirectory(prefix="surreal-check-") as folder:
        console = Path(folder) / "console"
        if starter.start(__name__, [source, *overrides], console=console, environment={}).wait() != 0:
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
