"""Read a command line into a dataclass, with Typer.

@dataclass(frozen=True)
class Arguments:
    source: Annotated[str, typer.Argument(metavar="FILE", help="Configuration.")]
    steps: Annotated[int, typer.Option(min=1, help="Env steps.")] = 1000

arguments = read_command_line(Arguments, sys.argv[1:], name="my-program")
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

T = TypeVar("T")
HELP_OPTIONS = ("-h", "--help")


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
    options = options_of(kind, left_out)

    def make(**given: Any) -> T:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        return finish(kind(**values))

    return call_with_options(make, options, argv, name=name, text=text)


def options_of(kind: type[Any], left_out: Collection[str] = ()) -> list[inspect.Parameter]:
    """Return the parameters of `read_command_line`."""
    annotations = get_type_hints(kind, include_extras=True)
    return [
        _option(field.name, annotations[field.name], field.default)
        for field in fields(kind)
        if field.name not in left_out
        and any(isinstance(note, ParameterInfo) for note in get_args(annotations[field.name])[1:])
    ]


def call_with_options(
    action: Callable[..., T],
    options: Iterable[inspect.Parameter],
    argv: Sequence[str],
    *,
    name: str | None = None,
    text: str | None = None,
    is_plain: bool = False,
) -> T:
    """Call `action` with the command line's values; if `is_plain`, the text has Click's marks, not Markdown."""
    returned: list[T] = []
    command = make_command(lambda **given: returned.append(action(**given)), options, text, is_plain=is_plain)
    try:
        _refuse_missing_values(command, argv)
        status = command(args=list(argv), prog_name=name, standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # Typer's own errors of usage; its versions derive them differently
            raise
        sys.stderr.write(f"error: {error.format_message()}\n")
        raise SystemExit(getattr(error, "exit_code", 2)) from error
    if not returned:  # the help was printed
        raise SystemExit(status or 0)
    return returned[0]


def make_command(
    action: Callable[..., None], options: Iterable[inspect.Parameter], text: str | None, *, is_plain: bool = False
) -> Any:
    """Make a command of Click, which calls `action` with the values of the options."""

    def call(**given):  # type: ignore[no-untyped-def]  # without annotations: Typer reads those of the signature
        action(**given)

    call.__signature__ = inspect.Signature(list(options))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None if is_plain else "markdown")
    app.command(help=text, context_settings={"help_option_names": list(HELP_OPTIONS)})(call)
    return with_short_help(typer.main.get_command(app))


def with_short_help(command: Any) -> Any:
    """Leave environment variables and the types of flags and arguments out of a command's help; return the command."""
    for parameter in command.get_params(typer.Context(command, help_option_names=list(HELP_OPTIONS))):
        parameter.show_envvar = False
        if getattr(parameter, "is_flag", False) or not parameter.opts[0].startswith("-"):
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - Typer gives it
    for inner in getattr(command, "commands", {}).values():
        with_short_help(inner)
    return command


def _refuse_missing_values(command: Any, argv: Sequence[str]) -> None:
    """Refuse `--run-dir --resume`: Typer would take the second option for the first one's value."""
    options = {text: option for option in command.params for text in option.opts if text.startswith("-")}
    known = {*options, *HELP_OPTIONS}
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    for word, following in pairwise(words):
        if word in options and not options[word].is_flag and following in known:
            raise typer.BadParameter(f"it needs a value, and got the option {following}", param_hint=f"'{word}'")


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind, note = get_args(annotation)
    if get_origin(kind) is tuple:  # of any length, which Typer knows as a list
        annotation = Annotated[list[get_args(kind)[0]], note]  # type: ignore[misc]
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
