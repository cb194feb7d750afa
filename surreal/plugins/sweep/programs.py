"""A sweep from a program or a notebook, without a YAML file.

from surreal.plugins.sweep.programs import sweep

table = sweep("cartpole-ppo", {"learner.gamma": [0.95, 0.98]}, seeds=3, steps=20_000)
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console

from surreal.api.sources import Source, write_source
from surreal.api.tables import table
from surreal.base.errors import SurrealError
from surreal.config.yaml_tree import write
from surreal.plugins.sweep.command import run_sweep
from surreal.run.process.ending import ExitCode
from surreal.run.process.interrupts import Interrupts


def sweep(
    base: Source,
    grid: Mapping[str, Sequence[Any]],
    *,
    algorithm: str | None = None,
    seeds: int = 1,
    steps: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    name: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    redis: str | None = None,
    progress: bool = True,
) -> Any:
    """Train every combination of some settings, as many runs at once as fit; call it from the main thread.

    Args:
        base: a preset, a file, a dict, a `Config`, or an environment's id, class or function, as for `surreal.train`.
        grid: settings by their dotted names, with the values of each.
        algorithm: an environment's algorithm, such as "ppo".
        seeds: number of seeds of each combination.
        steps: env steps of each run, which then ignores its goal; None uses the configuration's limits.
        overrides: settings of all runs, by their dotted names.
        name: name of the sweep; None: that of the preset, file or configuration.
        folder: folder of the sweep; None: `sweeps/NAME`.
        redis: address of a Redis; None starts one for the sweep.
        progress: show how far it is.

    Returns:
        A row for each combination, the best first: its number, settings, status, and mean score over the seeds; a
        `pandas.DataFrame`, or a dict of columns where pandas is not installed.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
        KeyboardInterrupt: Ctrl-C has ended all runs in order; `surreal sweep --resume` continues.
        SurrealError: the sweep failed.
    """
    limits = {} if steps is None else {"run.max_env_steps": steps, "run.stop_at_return": None}
    interrupts = Interrupts()
    with tempfile.TemporaryDirectory(prefix="surreal-sweep-") as place, open(os.devnull, "w") as nowhere:
        sources = Path(place) / "base"
        sources.mkdir()
        path = Path(write_source(base, algorithm, sources))
        plain = {
            "version": 1,
            "name": name or path.stem,
            "base": str(path.resolve()) if path.is_file() else str(path),
            "set": {**limits, **(overrides or {})},
            "grid": {key: list(values) for key, values in grid.items()},
            "seeds": seeds,
        }
        file = Path(place) / "sweep.yaml"
        file.write_text(write(plain), encoding="utf-8")
        console = Console(file=cast(IO[str], sys.stdout if progress else nowhere), soft_wrap=True)
        with interrupts.installed():
            outcome = run_sweep(
                file,
                console,
                interrupts,
                path=None if folder is None else Path(folder),
                redis=redis,
                is_quiet=not progress,
            )
    if (asked := interrupts.ending) is not None:
        signal.raise_signal(asked.exit_code - 128)
    if outcome.ending.exit_code is ExitCode.FAILED:
        raise SurrealError(outcome.ending.reason)
    rows = [
        {
            "trial": trial.number,
            **trial.settings,
            "status": "unfinished" if trial.end is None else trial.end.status,
            "score": None if trial.end is None else trial.end.score,
        }
        for trial in outcome.trials
    ]
    return table(sorted(rows, key=lambda row: -1e308 if row["score"] is None else row["score"], reverse=True))
