"""`surreal export`: a policy as a file that acts without Surreal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from surreal.cli.options import POLICY, Panel, Trust, policies
from surreal.run.process.arguments import option


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.SHIP)(export)


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=POLICY, autocompletion=policies)],
    output: Annotated[
        Path | None, option("FILE", "A .pt or .onnx file; default: next to CHECKPOINT.", "--output", "-o")
    ] = None,
    file_format: Annotated[
        str | None, option("FORMAT", "Format: torchscript or onnx; default: from the ending of -o.", "--format")
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a policy as TorchScript or ONNX: it acts without Surreal."""
    from surreal.plugins.export.exporter import export_policy

    written = export_policy(checkpoint, output, file_format=file_format, trust=trust)
    about = written.metadata
    policy = about["policy"]
    typer.echo(
        f"{written.path}: {written.file_format}, {written.size:,} bytes, "
        f"version {policy['version']} for {policy['environment']}"
    )
    for which in ("inputs", "outputs"):
        for each in about[which]:
            shape = ", ".join(["batch", *map(str, each["shape"])])
            typer.echo(f"  {which[:-1]:6} {each['name']:16} [{shape}] {each['dtype']}{_note(each)}")
    outside = [wrapper["name"] for wrapper in about["outside"]["wrappers"]]
    if about["outside"]["frame_stack"] > 1:
        outside.append(f"frame_stack of {about['outside']['frame_stack']}")
    if outside:
        typer.echo(f"  not in the file, for the environment to do: {', '.join(outside)}")
    typer.echo(f"it acted like the policy in {written.steps} steps, one by one and in one batch")


def _note(each: dict[str, Any]) -> str:
    if each.get("is_optional"):
        return ", may be left out"
    if each["name"] == "state":
        return ", zeros where an episode begins"
    return f", {each['start']} to {each['start'] + each['n'] - 1}" if each.get("kind") == "discrete" else ""
