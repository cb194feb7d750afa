"""Arguments of `surreal k8s render`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.completion import presets_and_files
from surreal.cli.options import Overrides
from surreal.run.process.arguments import option

Namespace = Annotated[
    str | None, option("NAME", "An existing namespace; default: surreal-RUN, which is also rendered.")
]


@dataclass(frozen=True)
class Request:
    """Arguments of `surreal k8s render`."""

    source: Annotated[
        str, typer.Argument(metavar="PRESET_OR_FILE", help="Configuration to train.", autocompletion=presets_and_files)
    ]
    image: Annotated[str, option("IMAGE", "Image of all processes, with its registry and tag.")]
    agents: Annotated[
        int | None, option("N", "Number of agents, or their maximum when scaled; default: agent.count.", min=0)
    ] = None
    run: Annotated[str | None, option("RUN", "The run's id; default: its name.")] = None
    namespace: Namespace = None
    overlay: Annotated[str | None, option("NAME", "local, gpu, cluster, autoscale, or your folder; needs kubectl.")] = (
        None
    )
    gpu_image: Annotated[str | None, option("IMAGE", "Image of processes on GPUs; default: --image.")] = None
    redis: Annotated[
        str | None, option("URL", "An existing Redis, without its password; default: a server for the run.")
    ] = None
    redis_user: Annotated[
        str | None, option("NAME", "User of --redis for all processes; default: one for each role.")
    ] = None
    redis_ca: Annotated[
        Path | None, option("FILE", "PEM file with the certificate authority of --redis, if it is private.")
    ] = None
    s3_endpoint: Annotated[str | None, option("URL", "S3 service for checkpoints, if it is not Amazon's.")] = None
    prometheus: Annotated[str | None, option("URL", "Prometheus that the overlay autoscale queries.")] = None
    priority_class: Annotated[
        str | None, option("NAME", "PriorityClass of all pods but agents, which yield first.")
    ] = None
    storage_class: Annotated[str | None, option("NAME", "StorageClass of all volumes; default: the cluster's.")] = None
    pull_secrets: Annotated[
        list[str] | None, option("NAME", "Secret for the image's registry; may be repeated.", "--pull-secret")
    ] = None
    has_tls: Annotated[
        bool, option(None, "TLS for the run's own Redis; needs `surreal k8s secret --tls`.", "--tls")
    ] = False
    has_jobs: Annotated[
        bool, option(None, "Jobs, which end with the run, instead of Deployments, which stay.", "--jobs")
    ] = False
    overrides: Overrides = None
