"""Commands for Kubernetes: `surreal k8s render | secret | copy`, and `surreal health`, which its probes call."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.completion import presets_and_files
from surreal.cli.options import Overrides, Panel, with_fields

k8s_app = typer.Typer(
    name="k8s",
    help="A run on Kubernetes: its manifests and its secrets.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: `surreal/__main__.py` usually answers `surreal health` without this module.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="An existing namespace; default: surreal-RUN, which is also rendered."),
]


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.add_typer(k8s_app, rich_help_panel=Panel.CLUSTERS)
    app.command(context_settings=_PASS_ON, rich_help_panel=Panel.CLUSTERS)(health)


@dataclass(frozen=True)
class Request:
    """Arguments of `surreal k8s render`."""

    source: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration to train.", autocompletion=presets_and_files)
    ]
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Image of all processes, with its registry and tag.")]
    agents: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Number of agents, or their maximum when scaled; default: agent.count."),
    ] = None
    run: Annotated[str | None, typer.Option(metavar="RUN", help="The run's id; default: its name.")] = None
    namespace: Namespace = None
    overlay: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="local, gpu, cluster, autoscale, or your folder; needs kubectl."),
    ] = None
    gpu_image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Image of processes on GPUs; default: --image.")
    ] = None
    redis: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An existing Redis, without its password; default: a server for the run."),
    ] = None
    redis_user: Annotated[
        str | None, typer.Option(metavar="NAME", help="User of --redis for all processes; default: one for each role.")
    ] = None
    redis_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PEM file with the certificate authority of --redis, if it is private."),
    ] = None
    s3_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="S3 service for checkpoints, if it is not Amazon's.")
    ] = None
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Prometheus that the overlay autoscale queries.")
    ] = None
    has_tls: Annotated[
        bool, typer.Option("--tls", help="TLS for the run's own Redis; needs `surreal k8s secret --tls`.")
    ] = False
    has_jobs: Annotated[
        bool, typer.Option("--jobs", help="Jobs, which end with the run, instead of Deployments, which stay.")
    ] = False
    overrides: Overrides = None


@k8s_app.command()
@with_fields
def render(
    options: Request,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; default: stdout.")
    ] = None,
) -> None:
    """Write the manifests of a run, for `kubectl apply -f -`."""
    from surreal.base.system.files import write_whole
    from surreal.plugins.clusters.kubernetes.rendering import render
    from surreal.plugins.clusters.kubernetes.source import write_manifests

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
    tls: Annotated[bool, typer.Option("--tls", help="Certificates of the run's Redis as well; needs openssl.")] = False,
) -> None:
    """Write new passwords for a run as Secrets, for `kubectl create -f -`; they are stored nowhere else."""
    from surreal.plugins.clusters.kubernetes.redis import make_secrets
    from surreal.plugins.clusters.kubernetes.source import write_manifests

    if sys.stdout.isatty():
        raise ConfigError("these are secrets; pipe them: `surreal k8s secret RUN | kubectl create -f -`")
    typer.echo(write_manifests(make_secrets(run, namespace, has_tls=tls)), nl=False)


@k8s_app.command()
def copy(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")],
) -> None:
    """Copy base and overlays, to write your own overlay."""
    from surreal.plugins.clusters.kubernetes.source import copy_manifests

    copy_manifests(folder)
    typer.echo(f"copied to {folder}")


def health(context: typer.Context) -> None:
    """Report the health of a local process, for probes."""
    from surreal.base.system import probe

    raise typer.Exit(probe.main(context.args))
