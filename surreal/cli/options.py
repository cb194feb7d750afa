"""Options that several commands share with their completion in a shell, the panels of `surreal --help`, and output.

The shell starts `surreal` for each completion, so completing imports nothing heavy.
"""

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

from surreal.run.process.arguments import OFFLINE, RUN_DIR, SET, option, warn_of_password
from surreal.run.process.interrupts import Output

_PROGRAM, _VARIABLE = "surreal", "_SURREAL_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
#: End of typer's script for bash: no space after the `=` of a setting, because its value is missing.
_BASH_END = "    return 0\n"
_BASH_NO_SPACE = '    [[ "${COMPREPLY[0]-}" == *= ]] && compopt -o nospace 2>/dev/null\n'


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(completion)


def completion(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.", autocompletion=lambda: _SHELLS)
    ],
) -> None:
    """Print the script that completes presets, runs, policies and settings; --install-completion installs it."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in _SHELLS:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(_SHELLS)}", param_hint="SHELL")
    script = get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell)
    if shell == "bash":
        script = script.replace(_BASH_END, f"{_BASH_NO_SPACE}{_BASH_END}")
    typer.echo(script)


def preset_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets, with their titles."""
    from surreal.config import preset_files

    names = [name for name in preset_files.preset_names() if name.startswith(incomplete)]
    return [(name, preset_files.preset_title(name)) for name in names]


def presets_and_files(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets and YAML files."""
    return preset_names(incomplete) + [(path, "") for path in _paths(incomplete, "*.yaml")]


def run_names(incomplete: str) -> list[str]:
    """Complete ids of runs with folders here."""
    from surreal.run.process.run_folder import RUN_NAME, RUNS_FOLDER, RunFolder

    folders = [RunFolder(path.parent) for path in sorted(RUNS_FOLDER.glob(f"*/{RUN_NAME}"))]
    return [name for folder in folders if (name := folder.read_run()) and name.startswith(incomplete)]


def policies(incomplete: str) -> list[str]:
    """Complete best policies of runs with folders here, and other policy files."""
    from surreal.run.process.run_folder import RUNS_FOLDER

    best = [str(path) for path in sorted(RUNS_FOLDER.glob("*/eval/best.safetensors"))]
    files = [path for ending in ("safetensors", "onnx", "pt") for path in _paths(incomplete, f"*.{ending}")]
    return list(dict.fromkeys([path for path in best if path.startswith(incomplete)] + files))


def _paths(incomplete: str, pattern: str) -> list[str]:
    folder = Path(incomplete.rpartition("/")[0] or ("/" if incomplete.startswith("/") else "."))
    try:
        found = [
            f"{path}/" if path.is_dir() else str(path)
            for path in sorted(folder.iterdir())
            if path.is_dir() or path.match(pattern)
        ]
    except OSError:
        return []
    return [path for path in found if path.startswith(incomplete)]


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
