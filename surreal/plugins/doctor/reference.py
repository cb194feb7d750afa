"""The table of all faults in docs/doctor.md: `python -m surreal.plugins.doctor.reference`. `make docs` writes it."""

from __future__ import annotations

import sys

from surreal.plugins.doctor.environment import faults as environment
from surreal.plugins.doctor.frame import faults as frame
from surreal.plugins.doctor.frame.finding import Fault
from surreal.plugins.doctor.machine import faults as machine
from surreal.plugins.doctor.model import faults as model
from surreal.plugins.doctor.run import faults as run
from surreal.plugins.doctor.server import faults as server

_SECTIONS = {
    "installation": machine,
    "redis, clocks": server,
    "environment": environment,
    "model": model,
    "run, clocks": run,
    "any section": frame,
}


def all_faults() -> dict[str, list[Fault]]:
    """Give all faults by their section."""
    return {
        section: [value for value in vars(module).values() if isinstance(value, Fault)]
        for section, module in _SECTIONS.items()
    }


def render() -> str:
    """Write the tables, a section each."""
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
