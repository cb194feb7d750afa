"""Options that several commands share, the panels of `surreal --help`, and console output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import IO, Annotated, Any, cast, get_type_hints

import typer
from rich.console import Console

from surreal.cli.completion import run_names
from surreal.run.process.arguments import OFFLINE, RUN_DIR, SET, option, warn_of_password
from surreal.run.process.interrupts import Output


class Panel(StrEnum):
    """Groups of commands in `surreal --help`, in this order."""

    TRAIN = "Train"
    LOOK = "Look"
    SHIP = "Ship"
    MANY = "Many runs"
    CLUSTERS = "Clusters"
    OTHER = "Other"  #: commands without a panel, such as those of other packages


#: Groups of options in the help of a command that has many.
APP_OPTIONS = "Options of an app"
CHECK_OPTIONS = "Check and verify"
OUTPUT_OPTIONS = "Output"

Overrides = Annotated[list[str] | None, SET]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="The run; default: the newest.", autocompletion=run_names)
]
RedisOption = Annotated[
    str | None,
    option(
        "URL",
        "host:port, redis://, rediss:// or unix://; default: $SURREAL_REDIS, else the run folder's address.",
        "--redis",
        callback=warn_of_password,
    ),
]
RunDir = Annotated[Path | None, RUN_DIR]
Offline = Annotated[str | None, OFFLINE]
Trust = Annotated[bool, option(None, "Import the classes and folders that it names; this runs their code.", "--trust")]
#: Help of an argument that names a policy.
POLICY = (
    "A policy, a learner's checkpoint, an exported policy, a run's folder, name or id, or a pretrained policy: "
    "cartpole-ppo."
)

NoColor = Annotated[
    bool,
    option(None, "No colors; NO_COLOR in the environment does the same.", "--no-color", rich_help_panel=OUTPUT_OPTIONS),
]


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Make the fields of the dataclass that a command takes as `options` options of the command.

    @with_fields
    def render(source: Annotated[str, typer.Argument()], options: JobOptions) -> None: ...
    """
    hints = get_type_hints(command, include_extras=True)
    kind = hints["options"]
    types = get_type_hints(kind, include_extras=True)
    parameters = []
    for name, parameter in signature(command).parameters.items():
        if name != "options":
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        for field in fields(kind):
            default = Parameter.empty if field.default is MISSING else field.default
            parameters += [Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name])]

    @wraps(command)
    def call(**given: Any) -> None:
        options = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(options=options, **given)

    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def stdout_console(on_failure: Callable[[str], object], *, no_color: bool) -> Console:
    """Make a console for a long command: its output may be closed at any time, and is live only on a real terminal.
    When the output can no longer be written, `on_failure` is called once with the reason.
    """
    return Console(
        file=cast(IO[str], Output(sys.stdout, on_failure)),
        soft_wrap=True,
        no_color=no_color or None,
        # FORCE_COLOR, which CI systems set, makes rich mistake a pipe for a terminal.
        force_interactive=None if sys.stdout.isatty() else False,
    )


def flag(text: str) -> bool:
    """Parse true or false as the value of an option."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise typer.BadParameter(f"expected true or false, got {text!r}")
    return known[text.lower()]


def say(console: Console, text: str) -> None:
    """Print a sentence without markup and highlighting."""
    console.print(text, markup=False, highlight=False)
