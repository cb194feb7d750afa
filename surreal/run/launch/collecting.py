"""Collect the last logs and metrics of a run into its folder, in another process that the launcher starts.

    python -m surreal.run.launch.collecting --run RUN --run-dir DIR

The learner collects while a run continues. This process takes over when the learner has ended, and ends when it is told
to and everything is in the folder. The launcher itself would have to import tensorboardX, which imports torch. With
`--beside`, this is `surreal run metrics-server`: it collects if no other process does, and leaves when the run ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import typer
import yaml

from surreal.base.errors import SurrealError
from surreal.base.system.command_line import read_command_line
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.collector import Collector
from surreal.run.launch.starting import Process, Spawner
from surreal.run.observers.making import STATE_NAME
from surreal.run.process import registry
from surreal.run.process.arguments import DEFAULT_REDIS, REDIS_VARIABLE
from surreal.run.process.interrupts import follow_parent, stop_at_signals

logger = logging.getLogger(__name__)

#: Longest time for the last entries, and for the start of the process, s.
_DRAIN_TIMEOUT_S, _START_TIMEOUT_S = 10.0, 20.0
_HURRIED_TIMEOUT_S = 3.0
#: Longest time for sinks, which may lack a whole run, and between two signs of their progress, s.
_SINKS_TIMEOUT_S, _SINKS_SILENCE_S = 600.0, 30.0
_STEP_S = 0.1
_POLL_INTERVAL_S = 0.02


class LastCollection:
    """The launcher's side: call `finish` when all other processes have ended."""

    def __init__(self, starter: Spawner, run: str, run_dir: Path, environment: Mapping[str, str]) -> None:
        self._starter = starter
        self._arguments = ["--run", run, "--run-dir", str(run_dir)]
        self._console = run_dir / "logs" / "collector.out"
        self._sinks_state = run_dir / STATE_NAME
        self._environment = environment
        self._console_size = 0
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._console.touch()
        self._console_size = self._console.stat().st_size
        self._process = self._starter.start(
            "surreal.run.launch.collecting", self._arguments, console=self._console, environment=self._environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def finish(self, is_hurried: Callable[[], bool]) -> None:
        """Wait until everything in Redis is in the folder; only shortly once `is_hurried` is true."""
        process = self._process
        if process is None:
            return
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S + _START_TIMEOUT_S
        is_told = False
        while process.poll() is None and time.monotonic() < deadline:
            if is_hurried():
                deadline = min(deadline, time.monotonic() + _HURRIED_TIMEOUT_S)
            elif (progress_s := self._sinks_progress_s()) is not None:
                deadline = max(deadline, progress_s + _SINKS_SILENCE_S)
            if not is_told and self._console.stat().st_size > self._console_size:  # it handles signals now
                is_told = True
                process.send_signal(signal.SIGTERM)
            time.sleep(_POLL_INTERVAL_S)
        if process.returncode != 0:
            logger.warning("the run's last logs and metrics are not in its folder")

    def _sinks_progress_s(self) -> float | None:
        try:
            return time.monotonic() - (time.time() - self._sinks_state.stat().st_mtime)
        except OSError:
            return None


@dataclass(frozen=True)
class _CollectingArguments:
    run: Annotated[str, typer.Option()]
    run_dir: Annotated[Path, typer.Option()]
    beside: Annotated[bool, typer.Option("--beside")] = False


def main(argv: Sequence[str]) -> int:
    """Collect until a signal comes, then collect the rest; returns the exit code."""
    arguments = read_command_line(_CollectingArguments, argv, name=__name__)
    stop = stop_at_signals()
    follow_parent()
    typer.echo("collecting the last logs and metrics")
    with RedisClient(os.environ.get(REDIS_VARIABLE, DEFAULT_REDIS), run=arguments.run) as client:
        collector = Collector(client, arguments.run_dir)
        while not (stop.is_set() or (arguments.beside and _is_ending(client))):
            collector.step(_STEP_S)
        is_whole = arguments.beside or collector.drain(_DRAIN_TIMEOUT_S)
        collector.close()
    _feed_sinks(arguments.run, arguments.run_dir)
    return 0 if is_whole else 1


def _feed_sinks(run: str, run_dir: Path) -> None:
    from surreal.run.process.run_folder import CONFIG_NAME

    try:
        if not yaml.safe_load((run_dir / CONFIG_NAME).read_text(encoding="utf-8")).get("sinks"):
            return
        from surreal.config import add_python_path, load_config
        from surreal.run.observers.making import make_feeder

        config = load_config(run_dir / CONFIG_NAME)
        add_python_path(config.python_path)
        make_feeder(config, run_dir, is_last=True, run=run, process="collector").close(_SINKS_TIMEOUT_S)
    except (OSError, ValueError, AttributeError, SurrealError) as error:
        logger.warning("sinks have missed the run's last metrics: %s", error)


def _is_ending(client: RedisClient) -> bool:
    return bool(client.attempt(lambda: registry.stop_reason(client), what="read the run's state"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
