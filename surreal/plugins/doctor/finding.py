"""Findings, the faults that they name, and checks with a time limit; output on the console and in docs/doctor.md."""

from __future__ import annotations

import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from surreal.base.system.health import innermost_call, stack_of
from surreal.config.yaml_tree import read_table
from surreal.run.process.ending import error_line

_INDENT = 11
_WIDEST = 100


class Severity(IntEnum):
    """Severity of a finding."""

    OK = 0  #: works
    HINT = 1  #: works, but could be better, or is unusual
    WARNING = 2  #: works badly, or will fail later
    ERROR = 3  #: does not work

    @property
    def label(self) -> str:
        return self.name.lower()


_STYLES = {Severity.OK: "green", Severity.HINT: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


class Fault(NamedTuple):
    """A kind of fault: an entry of faults.yaml, and a row of the table in docs/doctor.md."""

    section: str
    severity: Severity
    cause: str
    remedy: str


#: All faults by their names, in the order of their sections.
FAULTS = {
    name: Fault(section, Severity[severity.upper()], cause, remedy)
    for section, entries in read_table(__package__, "faults.yaml").items()
    for name, entry in entries.items()
    for (severity, cause), (_, remedy) in [entry.items()]
}


@dataclass(frozen=True)
class Finding:
    """A finding of a check."""

    severity: Severity
    text: str  #: one sentence with the value that was found
    remedy: str = ""  #: setting or command that helps; "" if nothing has to be done
    fault: str = ""  #: name of the fault; "" if everything is all right
    section: str = ""  #: set by the examination

    def in_section(self, section: str) -> Finding:
        return replace(self, section=section)

    def to_json(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "severity": self.severity.label,
            "fault": self.fault or None,
            "text": self.text,
            "remedy": self.remedy or None,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        severity = Severity[str(data["severity"]).upper()]
        return cls(severity, data["text"], data["remedy"] or "", data["fault"] or "", data["section"])


def fault(name: str, text: str, remedy: str = "") -> Finding:
    """Make a finding of a fault; `text` has the value, and `remedy` replaces the fault's."""
    known = FAULTS[name]
    return Finding(known.severity, text, remedy or known.remedy, name)


def ok(text: str) -> Finding:
    """Make a finding without a fault."""
    return Finding(Severity.OK, text)


def judge(text: str, *cases: tuple[bool, str], good: str = "") -> Finding:
    """Make a finding of the first fault whose case is true; else one without a fault, of the text `good` if given."""
    name = next((name for is_found, name in cases if is_found), None)
    return ok(good or text) if name is None else fault(name, text)


def listed(names: Sequence[str], most: int) -> str:
    """List the first names, and count the others: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def milliseconds(duration_s: float) -> str:
    """Format a duration: "0.094 ms", "1,240 ms"."""
    value = 1000 * duration_s
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity of findings; OK if there are none."""
    return max((finding.severity for finding in findings), default=Severity.OK)


class Check(NamedTuple):
    """A check with a time limit, such as `Check("latency", partial(latency, client))`."""

    title: str  #: its subject, for messages: "<title> did not end"
    find: Callable[[], Iterable[Finding]]
    timeout_s: float = 20.0


def run_check(check: Check) -> Iterator[Finding]:
    """Run a check until its time limit; an exception becomes a finding."""
    findings: list[Finding] = []
    thread = threading.Thread(target=lambda: findings.extend(ask(check)), name=f"doctor/{check.title}", daemon=True)
    thread.start()
    thread.join(check.timeout_s)
    yield from tuple(findings)
    if thread.is_alive():
        yield hang(check.title, check.timeout_s, innermost_call(stack_of(thread.ident or 0)))


def ask(check: Check) -> Iterator[Finding]:
    """Run a check on this thread."""
    try:
        yield from check.find()
    except Exception as error:
        yield fault("check-failed", f"{check.title}: {error_line(error)}")


def hang(title: str, timeout_s: float, place: str) -> Finding:
    """Make the finding of a check that did not end; `place` is the call that hangs."""
    return fault("check-hangs", f"{title} did not end within {timeout_s:.0f} s: it hangs in {place}")


def print_section(name: str, console: Console) -> None:
    """Print the title of a section."""
    console.print(Text(name, style="bold"))


def print_finding(finding: Finding, console: Console) -> None:
    """Print severity, text and remedy of a finding."""
    width = max(20, min(console.width, _WIDEST) - _INDENT - 1)
    parts = [finding.text, *([f"-> {finding.remedy}"] if finding.remedy else [])]
    first, *rest = [
        line
        for part in parts
        for line in textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    label = f"{finding.severity.label:<{_INDENT - 2}}"
    console.print(Text.assemble("  ", (label, _STYLES[finding.severity]), first), soft_wrap=True)
    for line in rest:
        console.print(Text(" " * _INDENT + line), soft_wrap=True)


def summary(findings: Sequence[Finding]) -> str:
    """Count the findings of each severity."""
    counts = Counter(finding.severity for finding in findings)
    bad = (Severity.ERROR, Severity.WARNING, Severity.HINT)
    parts = [f"{counts[severity]} {severity.label}{'s' * (counts[severity] != 1)}" for severity in bad]
    return f"{', '.join(parts)}; {counts[Severity.OK]} checks are ok"
