"""Commands for runs that were started elsewhere, or are over: `surreal status`, `top`, `stop`, `play` and `watch`."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from surreal.base.errors import ConfigError
from surreal.cli.options import (
    POLICY,
    NoColor,
    Overrides,
    Panel,
    RedisOption,
    RunDir,
    RunName,
    Trust,
    policies,
    say,
    stdout_console,
)
from surreal.plugins.runs import by_hand
from surreal.plugins.runs.many import runs_app
from surreal.plugins.runs.replay import replay_app
from surreal.run.process.arguments import option

if TYPE_CHECKING:
    from surreal.run.view.play import EpisodeDisplay


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(status)
    app.command(rich_help_panel=Panel.TRAIN)(stop)
    for command in (top, play, watch):
        app.command(rich_help_panel=Panel.LOOK)(command)
    by_hand.add_to(app)
    app.add_typer(runs_app, rich_help_panel=Panel.MANY)
    app.add_typer(replay_app, rich_help_panel=Panel.LOOK)


def status(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, option(None, "Print one JSON object.", "--json")] = False,
) -> None:
    """Show a run: in progress, from any machine that reaches its Redis, or over, from its folder."""
    from surreal.plugins.runs.status import ended_to_json, print_ended, print_status
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.view.reader import run_status

    try:
        with find_run(run_name, address=redis, run_dir=run_dir) as client:
            found = run_status(client)
    except RunOverError as over:
        if as_json:
            typer.echo(json.dumps(ended_to_json(over.folder.path)))
        else:
            print_ended(over, Console(soft_wrap=True))
        return
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        print_status(found, Console())


def stop(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    delete: Annotated[
        bool, option(None, "Also remove the run from Redis; only once its processes have ended.", "--delete")
    ] = False,
    undo: Annotated[
        bool, option(None, "Let a run that has ended continue, if its processes --stay.", "--undo")
    ] = False,
) -> None:
    """End a run: all of its processes drain."""
    from surreal.run.process import registry
    from surreal.run.process.finding import find_run

    if delete and undo:
        raise ConfigError("--undo lets the run continue, and --delete removes it: give one of them", key="--undo")
    with find_run(run_name, address=redis, run_dir=run_dir, must_be_known=not delete) as client:
        if undo:
            registry.clear_stop(client)
            typer.echo(f"run {client.run} may continue")
            return
        if not delete:
            registry.request_stop(client, "surreal stop")
            typer.echo(f"run {client.run} was asked to stop")
            return
        from surreal.plugins.runs.deleting import delete_run

        typer.echo(f"removed run {client.run}: {delete_run(client)} keys")


def top(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    once: Annotated[bool, option(None, "Print it once and exit.", "--once")] = False,
    no_color: NoColor = False,
) -> None:
    """Watch a run, from any machine that reaches its Redis; q leaves, s asks the run to stop."""
    from surreal.plugins.runs.status import print_ended
    from surreal.plugins.runs.top import Top
    from surreal.run.process.ending import ExitCode
    from surreal.run.process.finding import RunOverError, find_run
    from surreal.run.process.interrupts import set_at_signals

    stop = threading.Event()
    closed: list[str] = []

    def on_failure(reason: str) -> None:
        closed.append(reason)
        stop.set()

    console = stdout_console(on_failure, no_color=no_color)
    try:
        found = find_run(run_name, address=redis, run_dir=run_dir)
    except RunOverError as over:
        print_ended(over, console)
        return
    with found as client:
        # In a pipe, keys belong to another program, such as `less`.
        view = Top(client, console, sys.stdin if console.is_interactive else None, stop)
        if once:
            view.print_once()
            return
        signals = set_at_signals(stop, is_abortable=True)
        reason = view.watch()
    if signals or closed:
        raise typer.Exit(ExitCode(128 + signals[0]) if signals else ExitCode.HANGUP)
    say(console, f"run {client.run} has ended: {reason}" if reason else f"run {client.run} continues")


Record = Annotated[Path | None, option("DIR", "Write a video of each episode.")]
Show = Annotated[bool, option(None, "Open a window.", "--show")]
Terminal = Annotated[bool, option(None, "Draw on this terminal.", "--terminal")]
Seed = Annotated[int | None, option(None, "Seed of repeatable episodes; default: new ones each time.", min=0)]


def play(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=POLICY, autocompletion=policies)],
    episodes: Annotated[int, option(None, "Number of episodes.", min=1)] = 5,
    record: Record = None,
    show: Show = False,
    terminal: Terminal = False,
    seed: Seed = None,
    env_id: Annotated[str | None, option("ID", "Play in another environment.", "--env")] = None,
    stochastic: Annotated[bool, option(None, "Sample actions from the policy.", "--stochastic")] = False,
    overrides: Overrides = None,
    trust: Trust = False,
) -> None:
    """Play a saved policy, without a run."""
    _require_one(record, show, terminal)

    from surreal.run.build.saved_policy import load_policy
    from surreal.run.evaluation import EpisodeScore
    from surreal.run.view.play import fresh_rng, play_policy

    policy = load_policy(checkpoint, trust=trust)
    named = {"eval.env_id": env_id, "eval.sample": stochastic or None}
    settings = [f"{name}={json.dumps(value)}" for name, value in named.items() if value is not None]
    policy = policy.with_settings([*settings, *(overrides or ())])
    with ExitStack() as stack:
        view, say = _open_view(stack, record, show, terminal)

        def on_episode(number: int, score: EpisodeScore) -> None:
            say(f"episode {number}: return {score.episode_return:g}, {score.length} steps")

        scores = play_policy(policy, episodes, rng=fresh_rng(seed), view=view, on_episode=on_episode)
        mean = sum(score.episode_return for score in scores) / len(scores)
        say(f"mean return {mean:g} over {len(scores)} episodes")
        if record is not None:
            say(f"videos in {record}")


def watch(
    run_name: RunName = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    overrides: Overrides = None,
    episodes: Annotated[
        int | None, option(None, "Number of episodes; default: until the run ends, or Ctrl-C.", min=1)
    ] = None,
    record: Record = None,
    show: Show = False,
    terminal: Terminal = False,
    seed: Seed = None,
    trust: Trust = False,
) -> None:
    """Watch the current policy play; by default in a window, otherwise on the terminal."""
    _require_one(record, show, terminal)

    from surreal.plugins.runs.watching import Watcher
    from surreal.run.build.check import has_display
    from surreal.run.build.construct import trusted_config
    from surreal.run.process import registry
    from surreal.run.process.finding import find_run
    from surreal.run.view.play import fresh_rng

    if record is None and not terminal and not show:
        show = has_display()
        terminal = not show and sys.stdout.isatty()
    with find_run(run_name, address=redis, run_dir=run_dir) as client, ExitStack() as stack:
        found = trusted_config(registry.stored_config(client), f"run {client.run}", trust=trust)
        folders = json.dumps(found.python_path)
        config = registry.stored_config(client, (f"python_path={folders}", *(overrides or ())))
        view, say = _open_view(stack, record, show, terminal)
        say(f"watching run {client.run}")
        watcher = Watcher(client, config, view, rng=fresh_rng(seed))
        waiting = "waiting for the learner's first parameters"
        for seen in watcher.episodes(episodes, on_wait=lambda: say(waiting), wait=time.sleep):
            score = seen.score
            say(
                f"version {seen.version}, {seen.global_step:,} env steps: episode {seen.number}, "
                f"return {score.episode_return:g}, {score.length} steps"
            )
        if watcher.ending:
            say(f"no more episodes: {watcher.ending}")
        if record is not None:
            say(f"videos in {record}")


def _require_one(record: Path | None, show: bool, terminal: bool) -> None:
    given = {"--record": record is not None, "--show": show, "--terminal": terminal}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(asked)} exclude each other: an environment draws in one way at a time")


def _open_view(
    stack: ExitStack, record: Path | None, show: bool, terminal: bool
) -> tuple[EpisodeDisplay, Callable[[str], object]]:
    """Open a display; returns it, and a function that prints a line next to it."""
    from surreal.envs.terminal import open_screen
    from surreal.run.build.check import require_display
    from surreal.run.view.play import EpisodeDisplay

    if show:
        require_display("--show")
    if not terminal:
        return EpisodeDisplay(record=record, show=show), typer.echo
    screen = stack.enter_context(open_screen())
    handler = logging.Handler(logging.WARNING)  # else warnings would appear in the picture
    handler.emit = lambda record: screen.say(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    stack.callback(logging.getLogger().removeHandler, handler)
    return EpisodeDisplay(screen=screen), screen.say
