"""`surreal doctor`: diagnose problems and suggest fixes."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from surreal.cli.options import Overrides, Panel, RedisOption, RunDir, say
from surreal.run.process.arguments import option


def add_to(app: typer.Typer) -> None:
    """Add this command to the `surreal` command."""
    app.command(rich_help_panel=Panel.LOOK)(doctor)


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(metavar="RUN_PRESET_OR_FILE", help="Subject; default: the run in progress here, else app.yaml."),
    ] = None,
    only: Annotated[
        list[str] | None, option("SECTION", "One of installation, redis, clocks, environment, model, run.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip slow checks.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings too.")] = False,
    overrides: Overrides = None,
    redis: RedisOption = None,
    run_dir: RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Diagnose problems of this machine, Redis, an environment, a model or a run, and suggest fixes."""
    from surreal.plugins.doctor.examination import Examination
    from surreal.plugins.doctor.finding import Severity, print_finding, print_section, summary, worst
    from surreal.plugins.doctor.subject import find_subject

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
