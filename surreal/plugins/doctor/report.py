"""Prints findings, and writes the tables of all faults in docs/doctor.md."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from surreal.plugins.doctor.environment import faults as environment
from surreal.plugins.doctor.frame import finding as frame
from surreal.plugins.doctor.frame.finding import Fault, Finding, Severity
from surreal.plugins.doctor.machine import faults as machine
from surreal.plugins.doctor.model import faults as model
from surreal.plugins.doctor.run import faults as run
from surreal.plugins.doctor.server import faults as server

_STYLES = {Severity.OK: "green", Severity.HINT: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_INDENT = 11
_WIDEST = 100


def print_section(name: str, console: Console) -> None:
    """Print the title of a section."""
    console.print(Text(name, style="bold"))


def print_finding(finding: Finding, console: Console) -> None:
    """Print severity, text and remedy of a finding."""
    first, *rest = _wrapped(finding.text, console)
    label = finding.severity.label
    console.print(Text.assemble("  ", (f"{label:<{_INDENT - 2}}", _STYLES[finding.severity]), first), soft_wrap=True)
    if finding.remedy:
        rest += _wrapped(f"-> {finding.remedy}", console)
    for line in rest:
        console.print(Text(" " * _INDENT + line), soft_wrap=True)


def summary(findings: Sequence[Finding]) -> str:
    """Count the findings of each severity."""
    counts = Counter(finding.severity for finding in findings)
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "hint"}
    parts = [f"{counts[severity]} {word}{'s' * (counts[severity] != 1)}" for severity, word in words.items()]
    return f"{', '.join(parts)}; {counts[Severity.OK]} checks are ok"


def _wrapped(text: str, console: Console) -> list[str]:
    width = max(20, min(console.width, _WIDEST) - _INDENT - 1)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


_SECTIONS = {
    "installation": machine,
    "redis, clocks": server,
    "environment": environment,
    "model": model,
    "run, clocks": run,
    "any section": frame,
}


def all_faults() -> dict[str, list[Fault]]:
    """Return all faults by their section."""
    return {
        section: [value for value in vars(module).values() if isinstance(value, Fault)]
        for section, module in _SECTIONS.items()
    }


def render() -> str:
    """Return the tables, one for each section."""
    lines: list[str] = []
    for section, faults in all_faults().items():
        lines += [f"### {section.capitalize()}", "", "| fault | | cause | remedy |", "|---|---|---|---|"]
        for fault in faults:
            cells = (f"`{fault.name}`", fault.severity.label, fault.cause, fault.remedy)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render())
