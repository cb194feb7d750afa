"""Commands for runs on many machines: Redis, Kubernetes, Slurm, and metrics for Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from surreal.base.errors import ConfigError
from surreal.cli.options import Overrides, Panel, RedisOption, RunDir, run_names, say, with_fields
from surreal.plugins.clusters.options import AccessOptions, JobOptions, Namespace, Request, Source
from surreal.run.process.arguments import SHOWN_BY_PS, option


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    for command in (redis, metrics):
        app.command(rich_help_panel=Panel.CLUSTERS)(command)
    for group in (k8s_app, slurm_app):
        app.add_typer(group, rich_help_panel=Panel.CLUSTERS)
    app.command(context_settings=_PASS_ON, rich_help_panel=Panel.CLUSTERS)(health)


@with_fields
def redis(
    context: typer.Context,
    options: AccessOptions,
    bind: Annotated[str, option(None, "Address to listen on; other than 127.0.0.1 needs a password.")] = "127.0.0.1",
    port: Annotated[int, option(None, "TCP port; 0: a free one.", min=0, max=65535)] = 6379,
    no_start: Annotated[bool, option(None, "Only make the files of --acl and --tls.", "--no-start")] = False,
    maxmemory: Annotated[str, option("SIZE", 'Bound of its memory, such as "2gb".')] = "1gb",
    appendonly: Annotated[
        Path | None, option("DIR", "Keep the data in this folder, so that they survive a restart.")
    ] = None,
    drain: Annotated[float, option("S", "Longest wait for clients to leave, after SIGTERM.", min=0)] = 0.0,
) -> None:
    """Serve Redis for the processes of other machines, until Ctrl-C."""
    from surreal.plugins.clusters.redis.server import address_for_others, prepare_access, serve

    console = Console(soft_wrap=True)
    source = context.get_parameter_source("password")
    if source is not None and source.name == "COMMANDLINE":
        typer.echo(f"warning: {SHOWN_BY_PS}", err=True)
    access = prepare_access(options, bind, lambda sentence: say(console, sentence))
    if no_start:
        return

    def on_ready(server: Any) -> None:
        say(console, f"Redis at {address_for_others(server.address, bind)}, pid {server.pid}; Ctrl-C ends it")

    serve(
        bind=bind,
        port=port,
        access=access,
        maxmemory=maxmemory,
        appendonly=appendonly,
        drain_s=drain,
        on_ready=on_ready,
    )


def metrics(
    run_name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run to report; default: all runs of the Redis, or the newest below runs.",
            autocompletion=run_names,
        ),
    ] = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    host: Annotated[str, option(None, "Address to listen on; 0.0.0.0: for other machines.")] = "127.0.0.1",
    port: Annotated[int, option(None, "TCP port; 0: a free one.", min=0, max=65535)] = 8700,
    once: Annotated[bool, option(None, "Print the metrics once, and exit.", "--once")] = False,
) -> None:
    """Export run metrics to Prometheus until Ctrl-C: waiting times, sessions, steps, scores."""
    from surreal.base.system.program import install_command
    from surreal.run.process.finding import find_address

    try:
        from surreal.plugins.clusters.scaling.serving import open_reader, page, serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(f"metrics need prometheus_client; install it: {install_command('prometheus')}") from error

    address, run = find_address(run_name, address=redis, run_dir=run_dir)
    reader = open_reader(address, run)
    if once:
        typer.echo(page(reader), nl=False)
        return
    console, what = Console(soft_wrap=True), "all runs" if run is None else f"run {run}"
    serve(
        reader, host=host, port=port, on_ready=lambda url: say(console, f"metrics of {what} at {url}; Ctrl-C ends it")
    )


k8s_app = typer.Typer(name="k8s", help="A run on Kubernetes: its manifests and its secrets.", no_args_is_help=True)
#: `surreal/cli/__main__.py` usually answers `surreal health` without this module.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@k8s_app.command(name="render")
@with_fields
def render_manifests(
    options: Request,
    output: Annotated[Path | None, option("FILE", "File to write; default: stdout.", "--output", "-o")] = None,
) -> None:
    """Write the manifests of a run, for `kubectl apply -f -`."""
    from surreal.base.system.files import write_whole
    from surreal.plugins.clusters.kubernetes.manifest import write_manifests
    from surreal.plugins.clusters.kubernetes.rendering import render

    text = write_manifests(render(options, lambda sentence: typer.echo(f"warning: {sentence}", err=True)))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(output, text)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror or error}", key="--output") from error


@k8s_app.command()
def secret(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    namespace: Namespace = None,
    tls: Annotated[bool, option(None, "Certificates of the run's Redis as well; needs openssl.", "--tls")] = False,
) -> None:
    """Write new passwords for a run as Secrets, for `kubectl create -f -`; they are stored nowhere else."""
    from surreal.plugins.clusters.kubernetes.manifest import write_manifests
    from surreal.plugins.clusters.kubernetes.redis import make_secrets

    if sys.stdout.isatty():
        raise ConfigError("these are secrets; pipe them: `surreal k8s secret RUN | kubectl create -f -`")
    typer.echo(write_manifests(make_secrets(run, namespace, has_tls=tls)), nl=False)


@k8s_app.command()
def copy(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")]) -> None:
    """Copy base and overlays, to write your own overlay."""
    from surreal.plugins.clusters.kubernetes.manifest import copy_manifests

    copy_manifests(folder)
    typer.echo(f"copied to {folder}")


def health(context: typer.Context) -> None:
    """Report the health of a local process, for probes."""
    from surreal.base.system import probe

    raise typer.Exit(probe.main(context.args))


slurm_app = typer.Typer(name="slurm", help="Runs on a cluster with Slurm.", no_args_is_help=True)


@slurm_app.command(name="render")
@with_fields
def render_job(
    what: Source,
    options: JobOptions,
    agents: Annotated[int | None, option("N", "Number of agents; default: agent.count.", "--agents")] = None,
    overrides: Overrides = None,
    output: Annotated[Path | None, option("FILE", "File to write; default: stdout.", "--output", "-o")] = None,
    check: Annotated[bool, option(None, "Check classes and environment now, before the job waits.")] = True,
) -> None:
    """Write the batch script of a run, for sbatch: Redis and learner on one node, agents on others."""
    from surreal.plugins.clusters.slurm.script import render

    text = render(what, overrides or [], agents, options, is_tried=check)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}", key="-o") from error
    typer.echo(f"wrote {output}; `sbatch {output}` starts the run")


@slurm_app.command(name="redis")
def redis_of_job(
    run: Annotated[str, option("NAME", "The run's id.", "--run")],
    run_dir: Annotated[Path, option("DIR", "The run's folder, which all nodes see.", "--run-dir")],
    maxmemory: Annotated[str, option("SIZE", 'Maximum memory, such as "2gb".')] = "1gb",
    appendonly: Annotated[bool, option(None, "Keep the data in the run's folder, and load it.")] = False,
    interface: Annotated[str | None, option("NAME", "Network interface to listen on; default: all.")] = None,
    local_disk: Annotated[Path | None, option("DIR", "Folder on the node for the data while the server runs.")] = None,
) -> None:
    """Serve Redis for a job, as the batch script does; address and password are in the run's folder."""
    from surreal.base.system.logs import setup_logging
    from surreal.plugins.clusters.redis.server import serve_job

    setup_logging("info", "redis")
    serve_job(run, run_dir, maxmemory=maxmemory, keeps_experience=appendonly, interface=interface, disk=local_disk)
