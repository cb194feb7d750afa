"""`surreal play`: a saved policy; `surreal presets`: what there is to train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.errors import ConfigError


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(play)
    app.command()(presets)


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
