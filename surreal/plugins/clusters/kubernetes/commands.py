"""Commands for Kubernetes: `surreal k8s render | secret | copy`, and `surreal health`, which its probes call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.cli.options import Panel, with_fields
from surreal.plugins.clusters.kubernetes.options import Namespace, Request

k8s_app = typer.Typer(
    name="k8s",
    help="A run on Kubernetes: its manifests and its secrets.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: `surreal/__main__.py` usually answers `surreal health` without this module.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    app.add_typer(k8s_app, rich_help_panel=Panel.CLUSTERS)
    app.command(context_settings=_PASS_ON, rich_help_panel=Panel.CLUSTERS)(health)


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
