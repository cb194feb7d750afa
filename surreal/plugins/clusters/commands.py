"""Commands for runs on many machines: Redis, Kubernetes, Slurm, and metrics for Prometheus."""

from __future__ import annotations

import typer

from surreal.plugins.clusters.kubernetes import commands as kubernetes
from surreal.plugins.clusters.redis import commands as redis
from surreal.plugins.clusters.scaling import commands as scaling
from surreal.plugins.clusters.slurm import commands as slurm


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    for group in (redis, kubernetes, slurm, scaling):
        group.add_to(app)
