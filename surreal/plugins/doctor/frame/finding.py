"""Findings, the faults that they name, and checks with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from surreal.base.system.health import innermost_call, stack_of
from surreal.run.process.ending import error_line


class Severity(IntEnum):
    """Severity of a finding."""

    OK = 0  #: works
    HINT = 1  #: works, but could be better, or is unusual
    WARNING = 2  #: works badly, or will fail later
    ERROR = 3  #: does not work

    @property
    def label(self) -> str:
        return self.name.lower()


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


@dataclass(frozen=True)
class Fault:
    """A kind of fault: one row of the table in docs/doctor.md."""

    name: str  #: name for scripts and tests; it never changes
    severity: Severity
    cause: str  #: a sentence without values
    remedy: str  #: the remedy, unless the check has a better one

    def found(self, text: str, remedy: str = "") -> Finding:
        """Make a finding of this fault; `text` has the value, and `remedy` replaces the fault's."""
        return Finding(self.severity, text, remedy or self.remedy, self.name)


def error(name: str, cause: str, remedy: str) -> Fault:
    """Define a fault that keeps a run from working."""
    return Fault(name, Severity.ERROR, cause, remedy)


def warning(name: str, cause: str, remedy: str) -> Fault:
    """Define a fault with which a run works badly."""
    return Fault(name, Severity.WARNING, cause, remedy)


def hint(name: str, cause: str, remedy: str) -> Fault:
    """Define a fault with which a run could work better."""
    return Fault(name, Severity.HINT, cause, remedy)


def ok(text: str) -> Finding:
    """Make a finding without a fault."""
    return Finding(Severity.OK, text)


def judge(text: str, *cases: tuple[bool, Fault], good: str = "") -> Finding:
    """Make a finding of the first fault whose case is true; else one without a fault, of the text `good` if given."""
    fault = next((fault for is_found, fault in cases if is_found), None)
    return ok(good or text) if fault is None else fault.found(text)


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


FAILED = error(
    "check-failed",
    "A check raised an error, so its result is unknown.",
    "the sentence names the exception and its place",
)
HANGS = error(
    "check-hangs",
    "A check exceeded its time limit: an environment, a model or a file system hangs.",
    "check the named call; an environment needs its own timeout when it waits for something",
)
DIED = error(
    "check-died",
    "The process that tries environment and model ended during a check.",
    "env.pool: subproc isolates an environment that crashes from the agent, env.on_error: restart makes it again",
)
NOT_DONE = hint(
    "check-not-done",
    "Checks were skipped, because an earlier one failed.",
    "fix the errors above, and run doctor again",
)


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
        yield FAILED.found(f"{check.title}: {error_line(error)}")


def hang(title: str, timeout_s: float, place: str) -> Finding:
    """Make the finding of a check that did not end; `place` is the call that hangs."""
    return HANGS.found(f"{title} did not end within {timeout_s:.0f} s: it hangs in {place}")
