"""What shows how runs fare.

`surreal plot`: learning curves as a picture; `dashboard`: all runs on a web page; `doctor`: what is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from surreal.cli.options import Overrides, RedisOption, RunDir, say


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(plot)
    app.command()(dashboard)
    app.command()(doctor)


def plot(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Folders of runs or of many, patterns, names below runs.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The picture: .png, .svg or .pdf.")
    ] = Path("curves.png"),
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="What to draw, repeatable; default: evaluation return."),
    ] = None,
    axis: Annotated[str, typer.Option("--x", metavar="AXIS", help="steps, updates or seconds.")] = "steps",
    smooth: Annotated[float, typer.Option(min=0.0, max=0.999, help="Smooth each run: 0 not at all, 0.9 much.")] = 0.0,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", metavar="SETTING", help="Only this tells groups apart, repeatable; default: all settings."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the bands.")] = 0.95,
    each: Annotated[bool, typer.Option("--each", help="Draw each run besides.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Logarithmic values.")] = False,
    title: Annotated[str, typer.Option(help="Above the picture.")] = "",
    list_metrics: Annotated[bool, typer.Option("--list", help="Only list the metrics of these runs.")] = False,
) -> None:
    """Draw learning curves: the interquartile mean over seeds, with its confidence band."""
    import numpy as np

    from surreal.errors import ConfigError
    from surreal.runs.curves.line import Axis
    from surreal.runs.plot.drawing import Histories, PlotOptions
    from surreal.runs.plot.drawing import plot as draw
    from surreal.runs.reading.folders import find_runs
    from surreal.runs.reading.history import RETURN

    if axis not in list(Axis):
        raise ConfigError(f"--x is {axis!r}; it must be {', '.join(Axis)}", key="--x")
    histories = Histories(find_runs(runs))
    for problem in histories.problems():
        typer.echo(f"warning: {problem}", err=True)
    if list_metrics:
        for name, count in histories.metrics().items():
            typer.echo(f"{name:40} {count} of {len(histories.runs)} runs")
        return
    options = PlotOptions(
        metrics=tuple(metrics or (RETURN,)),
        axis=Axis(axis),
        smoothing=smooth,
        by=None if by is None else tuple(by),
        confidence=confidence,
        shows_runs=each,
        title=title,
        is_log=log,
    )
    for drawn in draw(histories, options, output, np.random.default_rng(0)):
        typer.echo(str(drawn))
    number = "1 run" if len(histories.runs) == 1 else f"{len(histories.runs)} runs"
    typer.echo(f"{output}: {number} along {options.axis.label}")


def dashboard(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER_OR_RUN...", help="Folders of runs, or runs; default: runs.")
    ] = None,
    redis: RedisOption = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; other than 127.0.0.1, all needs the token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 8600,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the token here, for the next start; made if missing.")
    ] = None,
) -> None:
    """Show all runs on a web page, until Ctrl-C: curves, settings, processes, logs, videos."""
    import os

    from rich.console import Console

    from surreal.cli.options import say
    from surreal.main.process.arguments import REDIS_VARIABLE
    from surreal.main.process.finding import require_folder
    from surreal.main.process.run_folder import RUNS_FOLDER
    from surreal.runs.dashboard.serving import Addresses, serve

    shown = [folder if folder.is_dir() else require_folder(folder).path for folder in folders or ()]
    console = Console(soft_wrap=True)

    def on_ready(addresses: Addresses) -> None:
        say(console, f"dashboard at {addresses.page}; Ctrl-C ends it")
        if token_file is None:
            say(console, f"to stop runs from it, open {addresses.with_token}")
        else:  # what is printed may end in a log
            say(console, f"to stop runs from it, open {addresses.page}?token=TOKEN with the token in {token_file}")

    serve(
        shown or [RUNS_FOLDER],
        redis=redis or os.environ.get(REDIS_VARIABLE),
        host=host,
        port=port,
        token_file=token_file,
        on_ready=on_ready,
    )


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(metavar="RUN_PRESET_OR_FILE", help="Default: the run in progress here, else app.yaml."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="SECTION", help="installation, redis, clocks, environment, model or run."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what takes long.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings too.")] = False,
    overrides: Overrides = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Diagnose problems of this machine, Redis, an environment, a model or a run, and suggest fixes."""
    from surreal.doctor.examination import Examination
    from surreal.doctor.frame.finding import Severity, worst
    from surreal.doctor.report import print_finding, print_section, summary
    from surreal.doctor.subject import find_subject

    subject = find_subject(target, overrides=overrides or (), redis=redis, run_dir=run_dir)
    examination = Examination(subject, only or (), is_quick=quick)
    console, findings = Console(highlight=False), []
    if as_json:
        findings = list(examination.run())
        found = [finding.to_json() for finding in findings]
        typer.echo(json.dumps({"subject": subject.title, "worst": worst(findings).label, "findings": found}))
    else:
        for finding in examination.run(lambda name: print_section(name, console)):
            findings.append(finding)
            print_finding(finding, console)
        say(console, summary(findings))
    if worst(findings) >= (Severity.WARNING if strict else Severity.ERROR):
        raise typer.Exit(1)
