"""Arguments of `surreal k8s render`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.completion import presets_and_files
from surreal.cli.options import Overrides

Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="An existing namespace; default: surreal-RUN, which is also rendered."),
]


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
        str | None, typer.Option(metavar="NAME", help="local, gpu, cluster, autoscale, or your folder; needs kubectl.")
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
    priority_class: Annotated[
        str | None, typer.Option(metavar="NAME", help="PriorityClass of all pods but agents, which yield first.")
    ] = None
    storage_class: Annotated[
        str | None, typer.Option(metavar="NAME", help="StorageClass of all volumes; default: the cluster's.")
    ] = None
    pull_secrets: Annotated[
        list[str] | None,
        typer.Option("--pull-secret", metavar="NAME", help="Secret for the image's registry; may be repeated."),
    ] = None
    has_tls: Annotated[
        bool, typer.Option("--tls", help="TLS for the run's own Redis; needs `surreal k8s secret --tls`.")
    ] = False
    has_jobs: Annotated[
        bool, typer.Option("--jobs", help="Jobs, which end with the run, instead of Deployments, which stay.")
    ] = False
    overrides: Overrides = None
