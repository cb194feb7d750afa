"""The `surreal` command, put together from its groups.

What a person asked for goes to stdout, an error to stderr as one line `error: ...`. The exit codes are those of
`surreal.run.process.ending`. `--debug`, anywhere, shows tracebacks.

Heavy imports (torch) happen inside the commands that need them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from surreal import __version__
from surreal.base.errors import ConfigError
from surreal.base.system.files import take_user
from surreal.cli import completion, policies, replay, running, runs, training
from surreal.run.process.ending import ExitCode, exit_code_of, print_error
from surreal.run.process.interrupts import hold_checkpoint_signal
from surreal.run.process.output import flush_output
from surreal.run.process.roles import ROLES

#: As whom commands come to a Redis that has users. Others only look; the processes of a run know it themselves.
_USERS = {
    **dict.fromkeys(("run", "sweep", "stop", "replay", "delete", "chaos"), "launcher"),
    **dict.fromkeys(("watch", "play"), "evaluation"),
}

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
    """The commands; a word of another system leads to the command that does the same here."""

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
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """Take what comes before a command."""
    # From here on, so that variables set options of commands, SURREAL_RUN_SEED, and not --version.
    context.auto_envvar_prefix = "SURREAL"
    take_user(_USERS.get(context.invoked_subcommand or "", "observer"), os.environ)


# In the order of `surreal --help`.
for _group in (training, running, runs, policies, replay, completion):
    _group.add_to(app)
for _plugin in sorted(entry_points(group="surreal.commands")):
    _plugin.load()(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_debugging = "--debug" in args
    if is_debugging and args[0] not in [role.name for role in ROLES]:
        args.remove("--debug")
    command = typer.main.get_command(app)
    _hide_variables(command)
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


def _hide_variables(command: Any) -> None:
    """Leave the names of variables out of the help, where each option's follows one rule."""
    for parameter in command.params:
        parameter.show_envvar = bool(parameter.envvar)
    for inner in getattr(command, "commands", {}).values():
        _hide_variables(inner)


def program() -> NoReturn:
    """Be the command: what happens to its output, or a late Ctrl-C, ends in no traceback."""
    if sys.argv[1:2] == ["run"] or sys.argv[1:2] in [[role.name] for role in ROLES if role.leads]:
        hold_checkpoint_signal()  # they listen for it once they have imported what they need
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flush_output()
    sys.exit(code)
