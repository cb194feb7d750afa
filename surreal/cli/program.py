"""The `surreal` command, put together from its groups.

What a person asked for goes to stdout, an error to stderr as one line `error: ...`. The exit codes are those of
`surreal.main.process.ending.reasons`. `--debug`, anywhere, shows tracebacks.

Heavy imports (torch) happen inside the commands that need them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from surreal import __version__
from surreal.cli import apps, cluster, completion, policies, replay, running, runs, seeing, sweep, training
from surreal.main.process.ending.output import flush_output
from surreal.main.process.ending.reasons import ExitCode, exit_code_of
from surreal.main.process.reports import print_error
from surreal.main.process.roles import ROLES
from surreal.utils.secrets import take_user

#: As whom commands come to a Redis that has users. Others only look; the processes of a run know it themselves.
_USERS = {
    **dict.fromkeys(("run", "sweep", "stop", "replay", "delete", "chaos"), "launcher"),
    **dict.fromkeys(("watch", "play"), "evaluation"),
}

app = typer.Typer(
    name="surreal",
    help="Distributed reinforcement learning with Redis in the middle.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SURREAL"},
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
    take_user(_USERS.get(context.invoked_subcommand or "", "observer"), os.environ)


# In the order of `surreal --help`.
for _group in (training, sweep, apps, running, seeing, runs, policies, replay, cluster, completion):
    _group.add_to(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_debugging = "--debug" in args
    if is_debugging and args[0] not in [role.name for role in ROLES]:
        args.remove("--debug")
    try:
        app(args)
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
    """Be the command: what happens to its output, or a late Ctrl-C, ends in no traceback."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flush_output()
    sys.exit(code)
