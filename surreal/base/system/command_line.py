"""Read a command line into a dataclass, with Typer.

@dataclass(frozen=True)
class Arguments:
    source: Annotated[str, typer.Argument(metavar="FILE", help="Configuration.")]
    steps: Annotated[int, typer.Option(min=1, help="Env steps.")] = 1000

arguments = read_command_line(Arguments, sys.argv[1:], name="my-program")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

T = TypeVar("T")


def read_command_line(
    kind: type[T],
    argv: Sequence[str],
    *,
    name: str,
    text: str | None = None,
    left_out: Collection[str] = (),
    finish: Callable[[T], T] = lambda arguments: arguments,
) -> T:
    """Read a command line; `--help` and wrong arguments end the process, with exit code 0 or 2.

    Args:
        kind: dataclass; its fields with a `typer.Option` or `typer.Argument` are the command's parameters. A field of
            type `tuple[str, ...]` may be given several times.
        argv: arguments without the program's name.
        name: name of the command, for its help and errors.
        text: help of the command.
        left_out: fields that are not parameters; they keep their defaults.
        finish: completes the arguments; a `typer.BadParameter` that it raises is an error like a wrong argument.
    """
    annotations = get_type_hints(kind, include_extras=True)
    options = [
        _option(field.name, annotations[field.name], field.default)
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in left_out and _is_option(annotations[field.name])
    ]

    def make(**given: Any) -> T:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        return finish(kind(**values))

    return call_with_options(make, options, argv, name=name, text=text)


def call_with_options(
    action: Callable[..., T],
    options: Iterable[inspect.Parameter],
    argv: Sequence[str],
    *,
    name: str | None = None,
    text: str | None = None,
) -> T:
    """Call `action` with what the command line gives for each of the options, and return what it returns."""
    returned: list[T] = []

    def call(**given: Any) -> None:
        returned.append(action(**given))

    call.__signature__ = inspect.Signature(list(options))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(help=text, context_settings={"help_option_names": ["-h", "--help"]})(call)
    try:
        typer.main.get_command(app)(args=list(argv), prog_name=name)
    except SystemExit:
        if not returned:
            raise
    return returned[0]


def _is_option(annotation: Any) -> bool:
    return any(isinstance(note, ParameterInfo) for note in get_args(annotation)[1:])


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind, note = get_args(annotation)
    if get_origin(kind) is tuple:  # of any length, which Typer knows as a list
        annotation = Annotated[list[get_args(kind)[0]], note]  # type: ignore[misc]
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
