"""Commands for runs that were started elsewhere, or are over."""

from __future__ import annotations

import typer

from surreal.plugins.runs import following, many, playing, replay


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `surreal` command."""
    for group in (following, playing, many, replay):
        group.add_to(app)
