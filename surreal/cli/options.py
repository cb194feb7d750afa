"""Options that several commands have, and how a command speaks."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from surreal.main.process.arguments import local_folder


def _local_folder(text: str) -> Path:
    try:
        return local_folder(text)
    except ArgumentTypeError as error:
        raise typer.BadParameter(str(error)) from error


Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override one setting; may be repeated.")
]
RedisOption = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="host:port, redis://, rediss://, unix://")
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", metavar="DIR", parser=_local_folder, help="The run's folder.")
]


def flag(text: str) -> bool:
    """Read true or false, as the value of an option."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise typer.BadParameter(f"expected true or false, got {text!r}")
    return known[text.lower()]


def say(console: Console, text: str) -> None:
    """Print a sentence as it is: no markup, no colours of its own."""
    console.print(text, markup=False, highlight=False)
