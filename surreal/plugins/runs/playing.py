"""`surreal play` and `watch`: a saved policy, or that of a run in progress."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.completion import policies
from surreal.cli.options import POLICY, Overrides, Panel, RedisOption, RunDir, RunName, Trust

if TYPE_CHECKING:
    from surreal.run.view.play import EpisodeDisplay

Record = Annotated[Path | None, typer.Option(metavar="DIR", help="Write a video of each episode.")]
Show = Annotated[bool, typer.Option("--show", help="Open a window.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Draw on this terminal.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of repeatable episodes; default: new ones each time.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(rich_help_panel=Panel.LOOK)(play)
    app.command(rich_help_panel=Panel.LOOK)(watch)


def play(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CHECKPOINT", help=POLICY, autocompletion=policies),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 5,
    record: Record = None,
    show: Show = False,
    terminal: Terminal = False,
    seed: Seed = None,
    trust: Trust = False,
) -> None:
    """Play a saved policy, without a run."""
    _require_one(record, show, terminal)

    from surreal.run.build.saved_policy import load_policy
    from surreal.run.evaluation import EpisodeScore
    from surreal.run.view.play import fresh_rng, play_policy

    policy = load_policy(checkpoint, trust=trust)
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
        int | None, typer.Option(min=1, help="Number of episodes; default: until the run ends, or Ctrl-C.")
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
    from surreal.run.build.trust import trusted_config
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
    """Refuse more than one way to show an environment."""
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
