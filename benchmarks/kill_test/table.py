"""The table of the kill test, from its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.kill_test.faults import FAULTS
from benchmarks.kill_test.subjects import SUBJECTS

#: How long a system may take to start, s.
START_LIMIT_S = 240.0
RECORDS = Path(__file__).with_name("results.jsonl")
_PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_BEGIN, _END = "<!-- kill test: written by python -m benchmarks.kill_test -->", "<!-- end of the kill test -->"


def write_table() -> None:
    """Replace the table in docs/reliability.md."""
    text = _PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(_BEGIN)
    if rest:
        _, _, tail = rest.partition(_END)
        _PAGE.write_text(f"{head}{_BEGIN}\n\n{table()}\n{_END}{tail}", encoding="utf-8")


def table() -> str:
    """Return the tables, one per task."""
    newest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for line in RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else ():
        record = json.loads(line)
        newest[record["task"], record["fault"], record["subject"]] = record
    lines: list[str] = []
    for task, title in (("cartpole", "CartPole"), ("frames", "CartPole from images of 84 x 84")):
        rows = [
            (fault, subject, newest[task, fault, subject])
            for fault in FAULTS
            for subject in SUBJECTS
            if (task, fault, subject) in newest
        ]
        if rows:
            lines += [
                f"{title}:",
                "",
                "| fault | system | continued by itself | until all work, s | env steps lost, doubled | updates lost "
                "| stored env steps before, after | mean return | repeat with |",
                "|---|---|---|---|---|---|---|---|---|",
                *(
                    f"| {FAULTS[fault].title} | {SUBJECTS[subject].title} | {_cells(each)} | `{_arguments(each)}` |"
                    for fault, subject, each in rows
                ),
                "",
            ]
    versions = sorted({f"{SUBJECTS[record['subject']].title} {record['version']}" for record in newest.values()})
    lines += [f"Versions: {', '.join(versions)}.", ""]
    lines += ["| system | against faults, it has |", "|---|---|"]
    lines += [f"| {subject.title} | {subject.supervision} |" for subject in SUBJECTS.values()]
    return "\n".join(lines) + "\n"


def command(record: Mapping[str, Any]) -> str:
    """Return the command that measures a row again."""
    return f"python -m benchmarks.kill_test {_arguments(record)}"


def _arguments(record: Mapping[str, Any]) -> str:
    task = "" if record["task"] == "cartpole" else f" --tasks {record['task']}"
    seed = "" if record.get("seed") is None else f" --seed {record['seed']}"
    return f"{record['subject']}{task} --faults {record['fault']}{seed}"


def _cells(record: Mapping[str, Any]) -> str:
    if "not_applicable" in record:
        return f"{record['not_applicable']} | | | | |"
    if "error" in record and "by_itself" not in record:
        machine = record.get("machine", {})
        load = f", on {machine['cores']} cores with a load of {machine['load']:.0f}" if machine else ""
        return f"not measured: it did not learn within {START_LIMIT_S:.0f} s{load} | | | | |"
    if "error" in record:
        return f"no; and it could not be started again: {record['error'][:80].replace('|', '/')} | | | | |"
    by_itself = "no: started again by hand" if not record["by_itself"] else "yes"
    if record["by_itself"] and record["restarted_by_loop"]:
        by_itself = "by the loop around it"
    stored = record["stored"]
    return " | ".join(
        (
            by_itself,
            f"{record['seconds']['all']:g}",
            f"{record['steps']['lost']:,}, {record['steps']['doubled']:,}",
            f"{record['updates']['lost']:,}",
            "" if stored["before"] is None else f"{stored['before']:,}, {stored['after'] or 0:,}",
            "" if record["return"] is None else f"{record['return']:g}",
        )
    )
