"""Returns next to d3rlpy's: runs that are recorded are found again, and the page has a table of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import offline_returns
from benchmarks.offline_returns import RECORDS, UPDATES, add, fill, read, returns, table

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "recorded.md"


def record(side: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    line = {"preset": "pendulum-bc", "dataset": "pendulum-medium", "updates": UPDATES, "seed": seed, "side": side}
    return {**line, "return": value, "digest": "d", **more}


def test_the_page_has_the_table_of_the_records() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "<!-- table: returns -->" in page
    assert page == fill(page, read(RECORDS)), "recorded.md is not what python -m benchmarks.offline_returns writes"


def test_lines_are_only_added(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert read(path) == []
    lines = [record("surreal", 0, -1.0), record("d3rlpy", 0, -2.0)]
    for count, line in enumerate(lines, start=1):
        before = path.read_text() if path.exists() else ""
        add(path, line)
        assert path.read_text().startswith(before)
        assert read(path) == lines[:count]


def test_a_run_is_found_by_its_preset_dataset_updates_seed_and_side() -> None:
    records = [
        record("surreal", 0, -1.0),
        record("d3rlpy", 2, -2.0),
        record("surreal", 5, -3.0),
        record("surreal", 1, -4.0, preset="pendulum-iql"),
        record("surreal", 1, -5.0, dataset="pendulum-expert"),
        record("surreal", 1, -6.0, updates=10),
    ]
    found = returns(records, "pendulum-bc", "pendulum-medium", UPDATES, (0, 1, 2))
    assert found == {"surreal": {0: -1.0}, "d3rlpy": {2: -2.0}}


def test_returns_on_other_steps_of_the_same_name_are_not_compared() -> None:
    records = [record("surreal", 0, -1.0), record("d3rlpy", 0, -2.0, digest="e")]
    with pytest.raises(ValueError, match="digest d, and a record has e"):
        returns(records, "pendulum-bc", "pendulum-medium", UPDATES, [0])
    with pytest.raises(ValueError, match="digest f, and a record has d"):
        returns(records[:1], "pendulum-bc", "pendulum-medium", UPDATES, [0], "f")
    assert returns(records, "pendulum-bc", "pendulum-medium", 10, [0], "f") == {"surreal": {}, "d3rlpy": {}}


@pytest.mark.parametrize(("last", "verdict"), [(-157.4, "yes"), (-157.6, "no")])
def test_the_aim_is_their_mean_minus_one_standard_error(last: float, verdict: str) -> None:
    theirs = [record("d3rlpy", seed, value) for seed, value in enumerate((-150.0, -152.0, -154.0))]  # -152 - 1.155
    ours = [record("surreal", seed, value) for seed, value in enumerate((-151.0, -151.0, last))]
    cells = row([*theirs, *ours])
    assert cells[3:] == ["-152.0, standard error 1.2", verdict]


def test_rows_without_all_seeds_say_so() -> None:
    assert row([]) == ["`pendulum-bc`", "pendulum-medium", "not run", "not run", "not run"]
    found = row([record("surreal", 0, -150.0), record("surreal", 1, -154.0), record("d3rlpy", 0, -150.0)])
    assert found[2:] == ["-152.0, standard error 2.0 (2 of 3 seeds)", "-150.0 (1 of 3 seeds)", "not run"]


def test_every_row_is_in_the_table() -> None:
    lines = list(table([]))[2:]
    found = [re.findall(r"`(\w+)-(\w+)` \| (\w+)-medium", line) for line in lines]
    tasks, kinds = offline_returns.TASKS, offline_returns.KINDS
    assert found == [[(task, kind, task)] for task in tasks for kind in kinds]


def test_another_dataset_has_a_row_of_its_own() -> None:
    others = [
        record("surreal", 0, -150.0) | {"dataset": "pendulum-expert", "updates": updates} for updates in (1, UPDATES)
    ]
    lines = list(table(others))
    assert len(lines) == len(list(table([]))) + 1
    assert lines[-1].startswith("| `pendulum-bc` | pendulum-expert | -150.0 (1 of 3 seeds) |")


def row(records: list[dict[str, Any]]) -> list[str]:
    """Return the cells of the first row."""
    return [cell.strip() for cell in list(table(records))[2].strip("|").split("|")]
