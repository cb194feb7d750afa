"""`surreal profile`: a timeline of all processes of a run, and a table of what they do."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from surreal.cli.options import Overrides, Panel, RedisOption, RunDir, run_names
from surreal.run.process.arguments import option

#: Columns that the table needs.
_WIDTH = 150


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(profile)


def profile(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|PRESET|FILE]",
            help="A run in progress (default: the newest), or a preset or configuration to start.",
            autocompletion=run_names,
        ),
    ] = None,
    overrides: Overrides = None,
    seconds: Annotated[float, option(None, "Length of the recording.", min=1)] = 20.0,
    rate: Annotated[int, option(None, "Samples per second of each thread.", min=1, max=1000)] = 100,
    output: Annotated[Path, option("FILE", "The timeline, for ui.perfetto.dev.", "--output", "-o")] = Path(
        "profile.json.gz"
    ),
    kernels: Annotated[
        bool, option(None, "Also record operators and kernels of some updates, by torch.profiler.", "--kernels")
    ] = False,
    redis: RedisOption = None,
    run_dir: RunDir = None,
) -> None:
    """Show where each process of a run spends its time: update, acting, environment, encoding, waiting."""
    from rich.console import Console

    from surreal.config import load_config, preset_names
    from surreal.plugins.profile.recording import record_run, record_start, write_timeline
    from surreal.plugins.profile.shares import print_shares
    from surreal.run.process.finding import find_run

    is_file = target is not None and target.endswith((".yaml", ".yml")) and Path(target).is_file()
    is_configuration = is_file or target in preset_names()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="surreal-kernels-") as folder:
        if target is not None and is_configuration:
            _check_writable(output)
            settings = overrides or []
            load_config(target, settings)
            settings = with_kernels(target, settings, folder) if kernels else settings
            options = [*(["--redis", redis] if redis else []), *(["--run-dir", str(run_dir)] if run_dir else [])]
            recording = record_start(target, settings, seconds=seconds, rate=rate, options=options)
        elif overrides or kernels:
            option = "--set" if overrides else "--kernels"
            raise typer.BadParameter(
                f"{target or 'a run in progress'} is not a preset or a file, so {option} has no use"
            )
        else:
            with find_run(target, address=redis, run_dir=run_dir) as client:
                _check_writable(output)
                recording = record_run(client, seconds=seconds, rate=rate)
        write_timeline(recording, output)
        print_shares(recording, Console(soft_wrap=True, width=max(Console().width, _WIDTH)))
        with output.with_name(f"{output.name.partition('.')[0]}-shares.txt").open("w") as table_file:
            print_shares(recording, Console(file=table_file, width=_WIDTH))
        typer.echo(f"timeline: {output}; open it in https://ui.perfetto.dev, which keeps it in your browser")
        for table in sorted(Path(folder).glob("*.txt")):
            kept = output.with_name(f"{output.name.partition('.')[0]}-{table.stem}-kernels.json.gz")
            shutil.move(table.with_name(f"{table.stem}.json.gz"), kept)
            typer.echo(f"\n{table.read_text()}\nkernels of the {table.stem}: {kept}")


def _check_writable(output: Path) -> None:
    """Find out before a recording whether it could be written; raises OSError if not."""
    with output.open("ab"):
        pass


def with_kernels(target: str, overrides: list[str], folder: str) -> list[str]:
    """Add the callback that records kernels to the configuration's callbacks."""
    from surreal.config import load_config
    from surreal.plugins.profile.kernels import CLASS_PATH

    callbacks = [each.model_dump(mode="json", by_alias=True) for each in load_config(target, overrides).callbacks]
    added = {"class": CLASS_PATH, "args": {"folder": folder}}
    return [*overrides, f"callbacks={json.dumps([*callbacks, added])}"]
