"""The `surreal` command, put together from its groups and from plugins, which any package can add.

`PLUGINS` in setup.py lists the plugins in `surreal/plugins/`; the `commands.py` of each adds its commands.

Output goes to stdout, an error to stderr as one line `error: ...`. The exit codes are those of
`surreal.run.process.ending`. `--debug`, anywhere, shows tracebacks.

Heavy imports (torch) happen inside the commands that need them.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo, TyperInfo

from surreal import __version__
from surreal.base.errors import ConfigError
from surreal.base.system.command_line import HELP_OPTIONS, with_short_help
from surreal.base.system.files import take_user
from surreal.cli import options, training
from surreal.cli.options import Panel
from surreal.run.process.ending import ExitCode, error_line, exit_code_of, print_error
from surreal.run.process.interrupts import flush_output, hold_checkpoint_signal
from surreal.run.process.roles import ROLES

#: User of each command in a Redis with users. Other commands only look; the processes of a run choose their own.
_USERS = {
    **dict.fromkeys(("run", "sweep", "stop", "replay", "delete", "chaos"), "launcher"),
    **dict.fromkeys(("watch", "play"), "evaluation"),
}

_PANELS = list(Panel)
#: Commands that come first in their panel, in this order.
_FIRST = ("run", "stop", "presets", "status", "top", "play", "watch")
#: A shell sets this variable while it completes a command line.
_COMPLETING = "_SURREAL_COMPLETE"
#: Words of RELAAX, Stanford's Surreal and other systems, with the command that does the same here.
_OTHER_WORDS = {
    **dict.fromkeys(("parameter-server", "relaax-parameter-server"), "ps"),
    **dict.fromkeys(("relaax-rlx-server", "server", "wsproxy", "relaax-wsproxy"), "rlx-server"),
    **dict.fromkeys(("metrics-server", "relaax-metrics-server"), "metrics"),
    **dict.fromkeys(("model-graph", "summary"), "model"),
    **dict.fromkeys(("evaluation", "evaluate", "evaluator"), "eval"),
    **dict.fromkeys(("train", "start", "all"), "run"),
    **dict.fromkeys(("actor", "worker"), "agent"),
    **dict.fromkeys(("tensorboard", "visdom"), "dashboard"),
    **dict.fromkeys(("create", "init"), "new"),
    **dict.fromkeys(("enjoy", "render"), "play"),
    **dict.fromkeys(("list", "ls"), "runs"),
    "configuration": "config",
    "kubernetes": "k8s",
    "tune": "sweep",
}


class _Commands(TyperGroup):
    """The commands, in the order of their panels; a word of another system leads to the command that does the same."""

    def list_commands(self, ctx: Any) -> list[str]:
        def place(name: str) -> tuple[int, int]:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            in_panel = _FIRST.index(name) if name in _FIRST else len(_FIRST)
            return _PANELS.index(panel) if panel in _PANELS else len(_PANELS), in_panel

        return sorted(super().list_commands(ctx), key=place)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = _OTHER_WORDS.get(args[0].replace("_", "-").lower()) if args else None
        if meant is not None and args[0] not in self.commands:
            raise ConfigError(f"surreal has no command {args[0]}; `surreal {meant}` does this")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    name="surreal",
    help="Distributed reinforcement learning with Redis in the middle.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": list(HELP_OPTIONS)},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"surreal {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - for its callback
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Handle options before the command."""
    # From here on, so that variables set options of commands, SURREAL_RUN_SEED, and not --version.
    context.auto_envvar_prefix = "SURREAL"
    take_user(_USERS.get(context.invoked_subcommand or "", "observer"), os.environ)


def add_plugins(app: typer.Typer, found: Iterable[EntryPoint]) -> None:
    """Add the commands of each plugin once, even if two installations name it; report a broken one and continue."""
    known: set[str] = set()
    for entry in sorted(found, key=lambda entry: entry.name):
        if entry.value in known:
            continue
        known.add(entry.value)
        try:
            entry.load()(app)
        except Exception as error:
            if _COMPLETING not in os.environ:
                sys.stderr.write(f"warning: the commands of plugin {entry.name} are missing: {error_line(error)}\n")
    added: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for info in added:
        if not isinstance(info.rich_help_panel, str):
            info.rich_help_panel = Panel.OTHER


for _group in (training, options):
    _group.add_to(app)
add_plugins(app, entry_points(group="surreal.commands"))


def _only(args: Sequence[str]) -> typer.Typer:
    """Return the program with only the command that is asked for, if known: making all is a third of the start."""
    asked = copy.copy(app)
    asked.registered_commands = [
        info for info in app.registered_commands
        if (info.name or typer.main.get_command_name(info.callback.__name__)) in args[:1]  # type: ignore[union-attr]
    ]  # fmt: skip
    asked.registered_groups = [
        info for info in app.registered_groups if info.typer_instance and info.typer_instance.info.name in args[:1]
    ]
    is_known = asked.registered_commands or asked.registered_groups
    return asked if is_known and _COMPLETING not in os.environ else app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_debugging = "--debug" in args
    if is_debugging and args[0] not in [role.name for role in ROLES]:
        args.remove("--debug")
    command = with_short_help(typer.main.get_command(_only(args)))
    try:
        command(args)
    except SystemExit as end:
        # Typer's own way to end: after every command, after --help (0), after wrong arguments (2).
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if is_debugging:
            raise
        print_error(error)
        return exit_code_of(error)
    return ExitCode.OK


def program() -> NoReturn:
    """Run the command. A closed output or a late Ctrl-C does not end in a traceback."""
    if sys.argv[1:2] == ["run"] or sys.argv[1:2] in [[role.name] for role in ROLES if role.leads]:
        hold_checkpoint_signal()  # they listen for it after their imports
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flush_output()
    sys.exit(code)
