"""`surreal slurm render`: the batch script of a run, for sbatch; `surreal slurm redis`: the Redis that it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.completion import presets_and_files
from surreal.cli.options import Overrides, Panel, with_fields
from surreal.plugins.clusters.slurm.options import JobOptions

slurm_app = typer.Typer(
    name="slurm",
    help="Runs on a cluster with Slurm.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.add_typer(slurm_app, rich_help_panel=Panel.CLUSTERS)


@slurm_app.command()
@with_fields
def render(
    what: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration to train.", autocompletion=presets_and_files)
    ],
    options: JobOptions,
    agents: Annotated[
        int | None, typer.Option("--agents", metavar="N", help="Number of agents; default: agent.count.")
    ] = None,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; default: stdout.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check classes and environment now, before the job waits.")] = True,
) -> None:
    """Write the batch script of a run, for sbatch: Redis and learner on one node, agents on others."""
    from surreal.plugins.clusters.slurm.script import render as render_script

    text = render_script(what, overrides or [], agents, options, is_tried=check)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}", key="-o") from error
    typer.echo(f"wrote {output}; `sbatch {output}` starts the run")


@slurm_app.command()
def redis(
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="The run's id.")],
    run_dir: Annotated[Path, typer.Option("--run-dir", metavar="DIR", help="The run's folder, which all nodes see.")],
    maxmemory: Annotated[str, typer.Option(metavar="SIZE", help='Maximum memory, such as "2gb".')] = "1gb",
    appendonly: Annotated[bool, typer.Option(help="Keep the data in the run's folder, and load it.")] = False,
    interface: Annotated[
        str | None, typer.Option(metavar="NAME", help="Network interface to listen on; default: all.")
    ] = None,
) -> None:
    """Serve Redis for a job, as the batch script does; address and password are in the run's folder."""
    from surreal.base.system.logs import setup_logging
    from surreal.plugins.clusters.slurm.redis import serve

    setup_logging("info", "redis")
    serve(run, run_dir, maxmemory=maxmemory, keeps_experience=appendonly, interface=interface)
