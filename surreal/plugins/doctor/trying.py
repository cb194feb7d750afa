"""Checks the environment or the model of a configuration, in a separate process that `frame.apart` starts.

python -m surreal.plugins.doctor.trying PIPE environment|model [--quick] [--maxmemory BYTES] SOURCE [OVERRIDE...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import typer

from surreal.base.system.command_line import read_command_line
from surreal.config import Config, add_python_path, load_config
from surreal.plugins.doctor.frame.apart import report
from surreal.plugins.doctor.frame.finding import Check
from surreal.run.process.interrupts import follow_parent


@dataclass(frozen=True)
class _Arguments:
    pipe: Annotated[int, typer.Argument()]
    section: Annotated[Literal["environment", "model"], typer.Argument()]
    source: Annotated[str, typer.Argument()]
    overrides: Annotated[tuple[str, ...], typer.Argument()] = ()
    quick: Annotated[bool, typer.Option("--quick")] = False
    maxmemory: Annotated[int | None, typer.Option()] = None


def main(argv: Sequence[str]) -> int:
    """Run the checks, and return the exit code."""
    follow_parent()
    arguments = read_command_line(_Arguments, argv, name=__name__)
    config = load_config(arguments.source, arguments.overrides)
    add_python_path(config.python_path)
    if arguments.section == "environment":
        report(arguments.pipe, environment_checks(config, is_quick=arguments.quick))
    else:
        report(arguments.pipe, model_checks(config, is_quick=arguments.quick, maxmemory_bytes=arguments.maxmemory))
    return 0


def environment_checks(config: Config, *, is_quick: bool) -> Iterator[Check]:
    """Return the checks of the environment; torch is not needed."""
    from surreal.plugins.doctor.environment.examining import LONG, QUICK, examine_environment
    from surreal.run.build.environments import build_env

    yield from examine_environment(partial(build_env, config, training=True), QUICK if is_quick else LONG)


def model_checks(config: Config, *, is_quick: bool, maxmemory_bytes: int | None) -> Iterator[Check]:
    """Return the checks of the model, its agent and its learner."""
    from surreal.plugins.doctor.model.examining import LONG, QUICK, examine_model

    yield from examine_model(config, QUICK if is_quick else LONG, maxmemory_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
