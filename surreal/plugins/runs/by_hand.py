"""Commands with which a person, or a script in a person's place, provides experience: `surreal record`, `teach`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from surreal.cli.options import Overrides, Panel, RedisOption, RunDir, RunName
from surreal.run.process.arguments import option

Expert = Annotated[
    str | None, option("MODULE:CLASS", "The class or function that chooses actions; default: the keyboard.")
]
SuccessReward = Annotated[float, option("R", "Added to the reward of a step marked as a success.")]
FailureReward = Annotated[float, option("R", "Added to the reward of a step marked as a failure.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    for command in (record, teach):
        app.command(rich_help_panel=Panel.TRAIN)(command)


def record(
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="An environment's id, or a preset or file whose environment is meant.")
    ],
    output: Annotated[Path, option("DIR", "Folder of the new archive.", "--output", "-o")],
    expert: Expert = None,
    episodes: Annotated[int | None, option(None, "Number of episodes; default: until Ctrl-C.", min=1)] = None,
    steps: Annotated[int | None, option(None, "Number of steps; the last episode is cut there.", min=1)] = None,
    successes_only: Annotated[
        bool, option(None, "Leave out episodes that were not marked as successes.", "--successes-only")
    ] = False,
    success_reward: SuccessReward = 1.0,
    failure_reward: FailureReward = 0.0,
    seed: Annotated[int | None, option(None, "Seed of the first episode; default: a new one.")] = None,
    overrides: Overrides = None,
) -> None:
    """Record demonstrations of a person or a script, for --offline and `surreal replay import`."""
    from contextlib import closing

    from surreal.config import add_python_path
    from surreal.envs.wrappers.intervention import Intervention
    from surreal.plugins.runs.keyboard import Keyboard
    from surreal.plugins.runs.recording import Recorder
    from surreal.run.process.interrupts import set_at_signals

    add_python_path([str(Path.cwd())])  # the expert's module is there
    made, form = _open(env, overrides or [], None if expert is not None else "rgb_array")
    with closing(made):
        chosen: Any = expert
        if expert is None:
            chosen = Keyboard(made, always=True)
            typer.echo(chosen.help)
        taught = Intervention(made, chosen, success_reward=success_reward, failure_reward=failure_reward)
        with Recorder(output, taught, form=form, successes_only=successes_only, seed=seed) as recorder:
            stop = threading.Event()
            set_at_signals(stop, is_abortable=True)
            recorder.play(episodes=episodes, steps=steps, stop=stop)
    if recorder.manifest is None:
        typer.echo(f"no whole episode was recorded ({recorder.discarded} discarded), so there is no {output}")
        raise typer.Exit(1)
    labels = [episode.success for episode in recorder.episodes]
    told = f", {labels.count(True)} of {len(labels)} successes" if any(label is not None for label in labels) else ""
    discarded = f", {recorder.discarded} discarded" if recorder.discarded else ""
    mean = sum(episode.episode_return for episode in recorder.episodes) / len(labels)
    typer.echo(
        f"{len(labels)} episodes with {recorder.num_steps:,} steps in {output}: mean return {mean:.4g}{told}{discarded}"
    )


def teach(
    run_name: RunName = None,
    expert: Expert = None,
    episodes: Annotated[
        int | None, option(None, "Number of episodes; default: until the run ends, or Ctrl-C.", min=1)
    ] = None,
    success_reward: SuccessReward = 1.0,
    failure_reward: FailureReward = 0.0,
    redis: RedisOption = None,
    run_dir: RunDir = None,
) -> None:
    """Join a run in progress as an agent, and take over from its policy: a person, or a script."""
    from surreal.config import add_python_path
    from surreal.plugins.runs.teaching import Teaching
    from surreal.run.process.arguments import RoleArguments
    from surreal.run.process.finding import find_address, find_run
    from surreal.run.process.role import run_role
    from surreal.run.process.roles import AGENT

    add_python_path([str(Path.cwd())])  # the expert's module is there
    with find_run(run_name, address=redis, run_dir=run_dir) as client:
        run = client.run
    address, _ = find_address(run_name, address=redis, run_dir=run_dir)
    arguments = RoleArguments(run=run, redis=address, run_dir=run_dir, index=None, once=True)
    raise typer.Exit(run_role(AGENT, Teaching(expert, episodes, success_reward, failure_reward, typer.echo), arguments))


def _open(source: str, overrides: list[str], render_mode: str | None) -> tuple[Any, Any]:
    """Make the environment of an id or a configuration, and describe the experience that its run would have."""
    from surreal.base.errors import ConfigError
    from surreal.config import add_python_path, load_config
    from surreal.config.preset_files import preset_names
    from surreal.envs import make_env
    from surreal.plugins.runs.recording import Format
    from surreal.run.build.environments import build_env

    if source in preset_names() or source.endswith((".yaml", ".yml")):
        config = load_config(source, overrides)
        add_python_path(config.python_path)
        return build_env(config, training=True, render_mode=render_mode), Format.of(config)
    if overrides:
        raise ConfigError(f"--set needs a configuration, and {source} is an environment's id", key="--set")
    return make_env(source, render_mode=render_mode), Format()
