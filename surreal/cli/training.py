"""`surreal run`, a command for each role, and `surreal presets`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surreal.base.errors import ConfigError, StoppedError, SurrealError
from surreal.base.system.logs import setup_logging
from surreal.cli.options import (
    APP_OPTIONS,
    CHECK_OPTIONS,
    OUTPUT_OPTIONS,
    NoColor,
    Offline,
    Overrides,
    Panel,
    RunDir,
    flag,
    preset_names,
    presets_and_files,
    say,
    stdout_console,
)
from surreal.run.process.arguments import Device, LogLevel, Seed, option, parse, warn_of_password
from surreal.run.process.ending import Ending, ExitCode, print_error
from surreal.run.process.roles import (
    AGENT,
    COMPONENTS,
    EVAL,
    LEARNER,
    RLX_CLIENT,
    RLX_SERVER,
    ROLES,
    Part,
    Role,
    launcher_overrides,
    parts_of,
)

if TYPE_CHECKING:
    from rich.console import Console

    from surreal.run.process.interrupts import Interrupts

_APP = Path("app.yaml")
#: Role commands pass all arguments to the role's parser, which `python -m surreal.run.roles.ROLE` also uses.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    """Add `run`, `presets` and the commands of all roles."""
    app.command(rich_help_panel=Panel.TRAIN)(run)
    app.command(rich_help_panel=Panel.TRAIN)(presets)
    for role in (role for role in ROLES if role.has_command):
        app.command(name=role.name, help=role.summary, context_settings=_PASS_ON, rich_help_panel=Panel.CLUSTERS)(
            _command_of(role)
        )


def run(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PRESET_OR_FILE | COMPONENT...",
            help="Configuration; default: the app in this folder. Or parts of the app: environment, servers, "
            "rlx-server, parameter-server, metrics-server.",
            autocompletion=presets_and_files,
        ),
    ] = None,
    config: Annotated[
        Path | None, option("FILE", "The app's settings.", "--config", "-c", rich_help_panel=APP_OPTIONS)
    ] = None,
    environments: Annotated[
        int | None,
        option(
            "N",
            "Environment programs of the app; default: 1.",
            "--n-environments",
            "-n",
            min=0,
            rich_help_panel=APP_OPTIONS,
        ),
    ] = None,
    exploit: Annotated[
        str | None,
        option("BOOL", "The first environment acts greedily and does not learn.", rich_help_panel=APP_OPTIONS),
    ] = None,
    show_ui: Annotated[
        bool, option(None, "The first environment shows itself.", "--show-ui", rich_help_panel=APP_OPTIONS)
    ] = False,
    overrides: Overrides = None,
    seed: Seed = None,
    device: Device = None,
    run_name: Annotated[str | None, option("NAME", "The run's id; default: new.", "--run")] = None,
    run_dir: RunDir = None,
    resume: Annotated[bool, option(None, "Continue the run of --run or --run-dir.", "--resume")] = False,
    deterministic: Annotated[
        bool, option(None, "One process, in a fixed order: the same seed gives the same parameters.", "--deterministic")
    ] = False,
    offline: Offline = None,
    redis: Annotated[
        str | None,
        option(
            "URL",
            "host:port, redis://, rediss:// or unix://; default: start a server for this run.",
            "--redis",
            callback=warn_of_password,
        ),
    ] = None,
    check: Annotated[
        bool,
        option(
            None,
            "Only check whether the run is possible; exit 0 if it is, 2 if not.",
            "--check",
            rich_help_panel=CHECK_OPTIONS,
        ),
    ] = False,
    verify: Annotated[
        bool,
        option(
            None, "Then play new episodes; exit 1 if they miss the goal.", "--verify", rich_help_panel=CHECK_OPTIONS
        ),
    ] = False,
    verify_episodes: Annotated[
        int, option("N", "Number of episodes that --verify plays.", min=1, rich_help_panel=CHECK_OPTIONS)
    ] = 100,
    progress: Annotated[
        bool, option(None, "Show progress, or only warnings and the end.", rich_help_panel=OUTPUT_OPTIONS)
    ] = True,
    quiet: Annotated[bool, option(None, "Show only the end.", "--quiet", "-q", rich_help_panel=OUTPUT_OPTIONS)] = False,
    no_color: NoColor = False,
    log_level: LogLevel = None,
) -> None:
    """Train on this machine: Redis, learner, agents and evaluation, until a limit or Ctrl-C."""
    from surreal.run.launch.starting import ForkServer
    from surreal.run.process.interrupts import Interrupts

    if check and verify:
        raise ConfigError("--check starts nothing that --verify could play; leave one of them out", key="--verify")
    # The log goes into the run's folder; the terminal shows progress and problems.
    setup_logging(log_level or "info", console_level=log_level or "warning")
    given = {
        "seed": seed,
        "device": device,
        "log_level": log_level,
        "run.deterministic": deterministic or None,
        "environment.n_environments": environments,
        "environment.exploit": None if exploit is None else flag(exploit),
        "environment.show_ui": show_ui or None,
    }
    extra = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    source, parts = _read_words(what or [], config, resume=resume)
    settings = (*(overrides or ()), *extra)
    interrupts = Interrupts()
    console = stdout_console(interrupts.end, no_color=no_color)
    is_run = Part.PARAMETER_SERVER in parts
    if not (is_run or check):
        ending = _run_companions(parts, source or str(_APP), settings, (run_name, redis, run_dir), interrupts, console)
        say(console, f"ended: {ending.reason}")
        raise typer.Exit(ending.exit_code)
    settings = (*settings, *(launcher_overrides(parts) if is_run else ()))
    has_companions = Part.RLX_SERVERS not in parts
    asked = (source, settings, run_name, run_dir, redis, resume, offline)
    if check:
        from surreal.run.launch.check import RunOptions, check_only

        try:
            say(console, check_only(RunOptions(*asked, has_companions=has_companions)))
        except SurrealError as error:  # like wrong arguments
            print_error(error)
            raise typer.Exit(2) from error
        return
    with interrupts.installed(), ForkServer([role.module for role in (LEARNER, AGENT, EVAL)]) as starter:
        # The processes' imports have begun; the launcher's imports run in parallel.
        from surreal.run.launch.check import RunOptions
        from surreal.run.launch.launcher import Launcher

        options = RunOptions(*asked, is_quiet=quiet, shows_progress=progress, has_companions=has_companions)
        try:
            outcome = Launcher(options, console, interrupts, starter).execute()
        except StoppedError:
            ending = interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)
            say(console, f"ended before it began: {ending.reason}")
            raise typer.Exit(ending.exit_code) from None
    for line in outcome.last_words():
        say(console, line)
    exit_code = outcome.ending.exit_code
    if exit_code is ExitCode.FAILED:
        print_error(SurrealError(outcome.ending.reason))
    if verify:
        from surreal.run.view.play import verify as play_again

        is_solved, sentence = play_again(outcome, verify_episodes)
        say(console, sentence)
        if not is_solved and exit_code is ExitCode.OK:
            exit_code = ExitCode.FAILED
    raise typer.Exit(exit_code)


def presets(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Print this preset, as the start of a file.", autocompletion=preset_names),
    ] = None,
) -> None:
    """List presets by task, with the extra that each needs; with NAME, print that preset."""
    from surreal.config.preset_files import preset_path, preset_table

    if preset is not None:
        typer.echo(preset_path(preset).read_text(encoding="utf-8"), nl=False)
        return
    for task, names in preset_table().items():
        typer.echo(task)
        for name, title in names.items():
            typer.echo(f"  {name:27} {title}")


def _read_words(words: Sequence[str], config: Path | None, *, resume: bool) -> tuple[str | None, frozenset[Part]]:
    """Separate components from a preset or file; returns that, or None, and the parts to run."""
    components = [word for word in words if word in COMPONENTS or word == "wsproxy"]
    sources = [word for word in words if word not in components] + ([] if config is None else [str(config)])
    if len(sources) > 1:
        known = ", ".join(COMPONENTS)
        raise ConfigError(f"{' and '.join(sources)} are two things to train; name one, and components ({known})")
    parts = parts_of(components)
    if sources:
        return sources[0], parts
    if _APP.is_file() and not resume:
        return str(_APP), parts
    if components or not resume:
        raise ConfigError(
            "there is no app.yaml here: name a preset or a file, or go to an app's folder; `surreal new NAME` makes one"
        )
    return None, parts


def _run_companions(
    parts: frozenset[Part],
    source: str,
    overrides: Sequence[str],
    where: tuple[str | None, str | None, Path | None],
    interrupts: Interrupts,
    console: Console,
) -> Ending:
    from surreal.run.launch.companions import Companions, RunPlace
    from surreal.run.launch.starting import Spawner
    from surreal.run.process.finding import find_address, find_run
    from surreal.run.process.run_folder import RUNS_FOLDER

    place = None
    if parts != COMPONENTS["environment"]:
        run_name, redis, run_dir = where
        address, run_name = find_address(run_name, address=redis, run_dir=run_dir)
        with find_run(run_name, address=address, run_dir=run_dir) as client:
            place = RunPlace(client.run, address, run_dir or RUNS_FOLDER / client.run)
        say(console, f"{', '.join(sorted(parts))} of run {place.run}; Ctrl-C ends it")
    companions = Companions(parts, source, overrides, place, Spawner(), lambda text: say(console, text))
    with interrupts.installed():
        try:
            return companions.execute(interrupts)
        except KeyboardInterrupt:
            return interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)


def _command_of(role: Role) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        if role not in (RLX_SERVER, RLX_CLIENT) and {"-h", "--help"} & {*context.args}:
            parse(role, context.args)  # ends here, without the imports of the role
        raise typer.Exit(importlib.import_module(role.module).main(context.args))

    return command
