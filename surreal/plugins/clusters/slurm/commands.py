"""`surreal slurm render`: the batch script of a run, for sbatch; `surreal slurm redis`: the Redis that it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.completion import presets_and_files
from surreal.cli.options import Overrides, Panel

slurm_app = typer.Typer(
    name="slurm",
    help="Runs on a cluster with Slurm.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_NODE = "The first node"
_QUEUE = "The queue"
_AGENTS = "The agents' nodes"


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.add_typer(slurm_app, rich_help_panel=Panel.CLUSTERS)


@slurm_app.command()
def render(
    what: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration to train.", autocompletion=presets_and_files)
    ],
    agents: Annotated[
        int | None, typer.Option("--agents", metavar="N", help="Number of agents; default: agent.count.")
    ] = None,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; default: stdout.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="The run's id, which later jobs continue; default: one per job."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of runs on a shared file system; default: runs, next to sbatch."),
    ] = None,
    activate: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help='Puts `surreal` on the PATH of a node: "source venv/bin/activate".'),
    ] = None,
    check: Annotated[bool, typer.Option(help="Check classes and environment now, before the job waits.")] = True,
    partition: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None,
    account: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None,
    qos: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None,
    time: Annotated[
        str | None, typer.Option(metavar="LIMIT", help="Time limit, such as 2-00:00:00.", rich_help_panel=_QUEUE)
    ] = None,
    warning: Annotated[
        int, typer.Option(metavar="S", help="Seconds before the time limit to drain.", rich_help_panel=_QUEUE)
    ] = 120,
    requeue: Annotated[
        bool, typer.Option(help="Requeue the job, which then continues.", rich_help_panel=_QUEUE)
    ] = True,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="Any option of sbatch; may be repeated.", rich_help_panel=_QUEUE),
    ] = None,
    cpus: Annotated[int, typer.Option(help="CPUs for Redis, learner and evaluation.", rich_help_panel=_NODE)] = 4,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory; default: Redis' maximum + 4G.", rich_help_panel=_NODE)
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="[TYPE:]N", help="GPUs for the learner.", rich_help_panel=_NODE)
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Interface for Redis, such as ib0; default: all.", rich_help_panel=_NODE),
    ] = None,
    appendonly: Annotated[
        bool, typer.Option(help="Keep the experience in the run's folder, for a requeue.", rich_help_panel=_NODE)
    ] = True,
    agent_cpus: Annotated[int, typer.Option(metavar="N", help="CPUs of each agent.", rich_help_panel=_AGENTS)] = 1,
    agent_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for each CPU of an agent.", rich_help_panel=_AGENTS)
    ] = "2G",
    agent_nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of nodes; default: Slurm's choice.", rich_help_panel=_AGENTS),
    ] = None,
    array: Annotated[
        bool,
        typer.Option(
            "--array",
            help="Agents as an array of jobs: each starts, fails and is preempted alone.",
            rich_help_panel=_AGENTS,
        ),
    ] = False,
    agent_partition: Annotated[
        str | None, typer.Option(help="Partition; default: --partition.", rich_help_panel=_AGENTS)
    ] = None,
) -> None:
    """Write the batch script of a run, for sbatch: Redis and learner on one node, agents on others."""
    from surreal.plugins.clusters.slurm.script import JobOptions
    from surreal.plugins.clusters.slurm.script import render as render_script

    options = JobOptions(
        run=run,
        folder=folder,
        partition=partition,
        agent_partition=agent_partition,
        account=account,
        qos=qos,
        time=time,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        agent_cpus=agent_cpus,
        agent_memory=agent_memory,
        agent_nodes=agent_nodes,
        has_array=array,
        activate=activate,
        interface=interface,
        warning_s=warning,
        is_requeued=requeue,
        keeps_experience=appendonly,
        sbatch=tuple(sbatch or ()),
    )
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
