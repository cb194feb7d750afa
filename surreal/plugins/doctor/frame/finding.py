"""`Finding`: one thing that a check found, good or bad. `Fault`: one kind of bad thing that it may find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How bad it is."""

    OK = 0  #: as it should be
    HINT = 1  #: works; something could be better, or is unusual
    WARNING = 2  #: works badly, or will fail later
    ERROR = 3  #: does not work

    @property
    def label(self) -> str:
        """The word for it."""
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """What was found."""

    severity: Severity
    text: str  #: one sentence with the value that was found
    remedy: str = ""  #: setting or command that helps; "" if nothing has to be done
    fault: str = ""  #: name of the fault; "" of what is as it should be
    section: str = ""  #: filled in by who runs the check

    def in_section(self, section: str) -> Finding:
        """The same, with its section."""
        return replace(self, section=section)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "section": self.section,
            "severity": self.severity.label,
            "fault": self.fault or None,
            "text": self.text,
            "remedy": self.remedy or None,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        """Undo `to_json`."""
        severity = Severity[str(data["severity"]).upper()]
        return cls(severity, data["text"], data["remedy"] or "", data["fault"] or "", data["section"])


@dataclass(frozen=True)
class Fault:
    """A kind of fault: one row of the table in docs/doctor.md.

    Attributes:
        name: for scripts and tests, never changed.
        severity: of its findings.
        cause: what is wrong, as a sentence without values.
        remedy: what helps, where the check has nothing more exact to say.
    """

    name: str
    severity: Severity
    cause: str
    remedy: str

    def found(self, text: str, remedy: str = "") -> Finding:
        """Make a finding of this fault.

        Args:
            text: what was found, with its value.
            remedy: what helps here; "" as the fault says.
        """
        return Finding(self.severity, text, remedy or self.remedy, self.name)


def ok(text: str) -> Finding:
    """Make a finding of something that is as it should be."""
    return Finding(Severity.OK, text)


def milliseconds(duration_s: float) -> str:
    """Write a duration as a person reads it: "0.094 ms", "1,240 ms"."""
    value = 1000 * duration_s
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def worst(findings: Iterable[Finding]) -> Severity:
    """The severest of them; OK if there are none."""
    return max((finding.severity for finding in findings), default=Severity.OK)
