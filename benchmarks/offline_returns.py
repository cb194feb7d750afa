"""Records of `python -m benchmarks.offline --updates N`: a line for each run, and the table on a page.

    python -m benchmarks.offline_returns        writes the table in docs/algorithms/recorded.md

A run is one side (surreal, d3rlpy) with a preset, a dataset and a seed. Its line is added when it ends, and no line is
ever changed. `digest` is that of the dataset's steps: returns on other steps are not compared.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).with_name("offline_returns.jsonl")
SIDES = ("surreal", "d3rlpy")
KINDS = ("bc", "td3bc", "iql", "cql")
#: What the table compares.
TASKS, UPDATES, SEEDS = ("pendulum", "hopper"), 50_000, (0, 1, 2)
_PAGE = Path(__file__).parents[1] / "docs" / "algorithms" / "recorded.md"
_TABLE = re.compile(r"(<!-- table: returns -->\n).*?(\n<!-- end -->)", re.DOTALL)

Record = Mapping[str, Any]


def read(path: Path) -> list[Record]:
    """Return all records, oldest first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def add(path: Path, record: Record) -> None:
    """Add a line, in one write."""
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(record) + "\n").encode())
        os.fsync(file.fileno())


def returns(
    records: Sequence[Record], preset: str, dataset: str, updates: int, seeds: Sequence[int], digest: str | None = None
) -> dict[str, dict[int, float]]:
    """Return the mean returns of both sides, by seed.

    Raises:
        ValueError: a record is of a dataset with this name and other steps.
    """
    found: dict[str, dict[int, float]] = {side: {} for side in SIDES}
    for record in records:
        if (record["preset"], record["dataset"], record["updates"]) != (preset, dataset, updates):
            continue
        digest = digest or record["digest"]
        if record["digest"] != digest:
            raise ValueError(
                f"the steps of {dataset} have the digest {digest}, and a record has {record['digest']}: it was made on "
                "other steps of this name; give the dataset another name, or --records another file"
            )
        if record["seed"] in seeds:
            found[record["side"]][record["seed"]] = record["return"]
    return found


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for one value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def fill(page: str, records: Sequence[Record]) -> str:
    """Put the table into its place on the page."""
    return _TABLE.sub(lambda found: "\n".join((found[1], *table(records))) + "\n" + found[2], page)


def table(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| preset | dataset | Surreal | d3rlpy | Surreal's mean is at least d3rlpy's minus one standard error |"
    yield "|---|---|---|---|---|"
    rows = [(f"{task}-{kind}", f"{task}-medium") for task in TASKS for kind in KINDS]
    others = {(each["preset"], each["dataset"]) for each in records if each["updates"] == UPDATES} - {*rows}
    for preset, dataset in (*rows, *sorted(others)):
        ours, theirs = (list(found.values()) for found in returns(records, preset, dataset, UPDATES, SEEDS).values())
        yield f"| `{preset}` | {dataset} | {_cell(ours)} | {_cell(theirs)} | {_verdict(ours, theirs)} |"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "not run"
    shown = f"{statistics.fmean(values):.1f}"
    if len(values) > 1:
        shown += f", standard error {standard_error(values):.1f}"
    return shown if len(values) == len(SEEDS) else f"{shown} ({len(values)} of {len(SEEDS)} seeds)"


def _verdict(ours: Sequence[float], theirs: Sequence[float]) -> str:
    if min(len(ours), len(theirs)) < len(SEEDS):
        return "not run"
    return "yes" if statistics.fmean(ours) >= statistics.fmean(theirs) - standard_error(theirs) else "no"


def main() -> None:
    """Write the table."""
    _PAGE.write_text(fill(_PAGE.read_text(encoding="utf-8"), read(RECORDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
