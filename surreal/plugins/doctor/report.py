"""Findings for people: a line each, with its severity as a word and its remedy below; readable without colour."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from surreal.plugins.doctor.frame.finding import Finding, Severity

_STYLES = {Severity.OK: "green", Severity.HINT: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_INDENT = 11
_WIDEST = 100


def print_section(name: str, console: Console) -> None:
    """Begin a section."""
    console.print(Text(name, style="bold"))


def print_finding(finding: Finding, console: Console) -> None:
    """Show a finding."""
    first, *rest = _wrapped(finding.text, console)
    label = finding.severity.label
    console.print(Text.assemble("  ", (f"{label:<{_INDENT - 2}}", _STYLES[finding.severity]), first), soft_wrap=True)
    if finding.remedy:
        rest += _wrapped(f"-> {finding.remedy}", console)
    for line in rest:
        console.print(Text(" " * _INDENT + line), soft_wrap=True)


def summary(findings: Sequence[Finding]) -> str:
    """Say how many there are of each severity."""
    counts = Counter(finding.severity for finding in findings)
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "hint"}
    parts = [f"{counts[severity]} {word}{'s' * (counts[severity] != 1)}" for severity, word in words.items()]
    return f"{', '.join(parts)}; {counts[Severity.OK]} as they should be"


def _wrapped(text: str, console: Console) -> list[str]:
    width = max(20, min(console.width, _WIDEST) - _INDENT - 1)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]
