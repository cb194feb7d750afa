"""The `surreal` command.

What a person asked for goes to stdout, an error to stderr as one line `error: ...`. The exit codes are those of
`surreal.main.process.ending.reasons`. `--debug`, anywhere, shows tracebacks.

Heavy imports (torch) happen inside the commands that need them.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn, cast

import typer
from rich.console import Console

from surreal import __version__
from surreal.errors import ConfigError, StoppedError, SurrealError
from surreal.main.commands.replay_files import RunDir, replay_app
from surreal.main.process.ending.output import Output, flush_output
from surreal.main.process.ending.reasons import Ending, ExitCode, exit_code_of
from surreal.main.process.reports import print_error
from surreal.main.process.roles import AGENT, EVAL, LEARNER, ROLES, Role
from surreal.utils.logs import setup_logging

app = typer.Typer(
    name="surreal",
    help="Distributed reinforcement learning with Redis in the middle.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(replay_app)

#: Role commands hand all their arguments to the role's own parser, which `python -m surreal.main.ROLE` uses too.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override one setting; may be repeated.")
]
RedisOption = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="host:port, redis://, rediss://, unix://")
]


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"surreal {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Take what comes before a command."""


@app.command()
def run(
    source: Annotated[str | None, typer.Argument(metavar="PRESET_OR_FILE", help="What to train.")] = None,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=N.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; the same as --set device=...")] = None,
    run_name: Annotated[str | None, typer.Option("--run", metavar="NAME", help="The run's id; default: new.")] = None,
    run_dir: RunDir = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of --run or --run-dir.")] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="One process, in a fixed order: the same seed gives the same parameters."),
    ] = False,
    offline: Annotated[
        Path | None, typer.Option("--offline", metavar="PATH", help="Learn from an exported replay, without agents.")
    ] = None,
    redis: RedisOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check what was asked for; exit 0 if it can run, 2 if not.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Afterwards play fresh episodes; exit 0 only if they reach the goal.")
    ] = False,
    verify_episodes: Annotated[int, typer.Option(min=1, metavar="N", help="How many --verify plays.")] = 100,
    progress: Annotated[bool, typer.Option(help="Show progress; without, only warnings and the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but the end.")] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Train on this machine: Redis, learner, agents and evaluation, until a limit or Ctrl-C."""
    from surreal.main.launch.starting.forking import ForkServer
    from surreal.main.process.ending.interrupts import Interrupts

    if check and verify:
        raise ConfigError("--check starts nothing that --verify could play; leave one of them out", key="--verify")
    # The log is for the run's folder; the person at the terminal sees progress, and what goes wrong.
    setup_logging(log_level or "info", console_level=log_level or "warning")
    given = {"seed": seed, "device": device, "log_level": log_level, "run.deterministic": deterministic or None}
    extra = [f"{key}={value}" for key, value in given.items() if value is not None]
    asked = (source, (*(overrides or ()), *extra), run_name, run_dir, redis, resume, offline)
    interrupts = Interrupts()
    console = Console(file=cast(IO[str], Output(sys.stdout, interrupts.end)), soft_wrap=True)
    if check:
        from surreal.main.commands.check import check as find_problems
        from surreal.main.launch.prepare import RunOptions

        try:
            _say(console, find_problems(RunOptions(*asked)))
        except SurrealError as error:  # as wrong arguments end it
            print_error(error)
            raise typer.Exit(2) from error
        return
    with interrupts.installed(), ForkServer([role.module for role in (LEARNER, AGENT, EVAL)]) as starter:
        # The processes' imports have begun; the launcher's own go on beside them.
        from surreal.main.launch.launcher import Launcher
        from surreal.main.launch.prepare import RunOptions

        options = RunOptions(*asked, is_quiet=quiet, shows_progress=progress)
        try:
            outcome = Launcher(options, console, interrupts, starter).execute()
        except StoppedError:
            ending = interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)
            _say(console, f"ended before it began: {ending.reason}")
            raise typer.Exit(ending.exit_code) from None
    for line in outcome.last_words():
        _say(console, line)
    exit_code = outcome.ending.exit_code
    if exit_code is ExitCode.FAILED:
        print_error(SurrealError(outcome.ending.reason))
    if verify:
        from surreal.main.commands.verify import verify as play_again

        is_solved, sentence = play_again(outcome, verify_episodes)
        _say(console, sentence)
        if not is_solved and exit_code is ExitCode.OK:
            exit_code = ExitCode.FAILED
    raise typer.Exit(exit_code)


def _add_role(role: Role) -> None:
    @app.command(name=role.name, help=role.summary, context_settings=_PASS_ON)
    def command(context: typer.Context) -> None:
        raise typer.Exit(importlib.import_module(role.module).main(context.args))


for _role in ROLES:
    _add_role(_role)


@app.command()
def redis(
    bind: Annotated[str, typer.Option(help="Where to listen; other than 127.0.0.1 needs a password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 6379,
    password: Annotated[
        str | None, typer.Option(envvar="SURREAL_REDIS_PASSWORD", help="Password; better given in the variable.")
    ] = None,
    maxmemory: Annotated[str, typer.Option(metavar="SIZE", help='Bound of its memory, such as "2gb".')] = "1gb",
    appendonly: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the data in this folder, so that they survive.")
    ] = None,
) -> None:
    """A Redis server for the processes of other machines, until Ctrl-C."""
    from surreal.main.commands.redis_server import address_for_others, serve

    console = Console(soft_wrap=True)

    def on_ready(server: Any) -> None:
        _say(console, f"Redis at {address_for_others(server.address, bind)}, pid {server.pid}; Ctrl-C ends it")

    serve(bind=bind, port=port, password=password, maxmemory=maxmemory, appendonly=appendonly, on_ready=on_ready)


@app.command()
def status(
    run_name: Annotated[str | None, typer.Argument(metavar="RUN", help="The run; default: the newest.")] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a running run, from anywhere that reaches its Redis."""
    from surreal.main.commands.status import find_run, print_status, run_status

    with find_run(run_name, address=redis, run_dir=run_dir) as client:
        found = run_status(client)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        print_status(found, Console())


@app.command()
def stop(
    run_name: Annotated[str | None, typer.Argument(metavar="RUN", help="The run; default: the newest.")] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove the run from Redis; only once its processes have ended.")
    ] = False,
) -> None:
    """End a run: all its processes drain."""
    from surreal.main.commands.status import find_run
    from surreal.main.process import registry

    with find_run(run_name, address=redis, run_dir=run_dir, must_be_known=not delete) as client:
        if not delete:
            registry.request_stop(client, "surreal stop")
            typer.echo(f"run {client.run} was asked to stop")
            return
        typer.echo(f"removed run {client.run}: {registry.delete_run(client)} keys")


@app.command()
def play(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="eval/best.safetensors, or a learner's.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a video of each episode.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Open a window.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeatable episodes; default: new ones each time.")] = None,
) -> None:
    """Play a saved policy, without a run."""
    if record is not None and show:
        raise ConfigError("--record and --show exclude each other: an environment draws in one way at a time")

    from surreal.evaluation import EpisodeScore
    from surreal.main.build.check import require_display
    from surreal.main.build.saved_policy import load_policy
    from surreal.main.commands.play import fresh_rng, play_policy

    if show:
        require_display("--show")

    def on_episode(number: int, score: EpisodeScore) -> None:
        typer.echo(f"episode {number}: return {score.episode_return:g}, {score.length} steps")

    scores = play_policy(
        load_policy(checkpoint), episodes, rng=fresh_rng(seed), record=record, show=show, on_episode=on_episode
    )
    mean = sum(score.episode_return for score in scores) / len(scores)
    typer.echo(f"mean return {mean:g} over {len(scores)} episodes")
    if record is not None:
        typer.echo(f"videos in {record}")


@app.command()
def presets(
    preset: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one, to begin a file with.")] = None,
) -> None:
    """List the presets by task, with the extra that each needs, or print one."""
    from surreal.config.loading.preset_files import preset_path, preset_table

    if preset is not None:
        typer.echo(preset_path(preset).read_text(encoding="utf-8"), nl=False)
        return
    for task, names in preset_table().items():
        typer.echo(task)
        for name, title in names.items():
            typer.echo(f"  {name:27} {title}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    is_debugging = "--debug" in args
    if is_debugging and not any(role.name in args for role in ROLES):
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


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)


if __name__ == "__main__":
    program()
