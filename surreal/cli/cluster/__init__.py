"""Commands for runs on many machines: one file for each group of them."""

from __future__ import annotations

import typer

from surreal.cli.cluster import chaos, kubernetes, metrics, slurm


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    for group in (kubernetes, slurm, metrics, chaos):
        group.add_to(app)
