"""The page of speed shows what benchmarks reported, and env steps a second are counted after the warm-up."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from benchmarks.speed import TABLES, Row, fill, read_reports, table
from benchmarks.throughput import agent_speed

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"


def test_the_page_has_the_tables_that_the_reports_give() -> None:
    page = PAGE.read_text()
    assert page == fill(page, read_reports()), "docs/speed.md is not what python -m benchmarks.speed writes"
    for rows in TABLES.values():
        assert "\n".join(table(rows, read_reports())) in page


@pytest.mark.parametrize(
    "module", sorted({row.command.split()[0] for rows in TABLES.values() for row in rows if row.command})
)
def test_commands_of_the_tables_exist(module: str) -> None:
    assert util.find_spec(f"benchmarks.{module}") is not None


def test_row_shows_range_threads_and_rounds_and_what_is_missing() -> None:
    found = {"name": "a", "ratio": 1.5, "ratio_range": [1.2, 1.75], "value": 1500.0, "baseline": 1000.0, "unit": "x/s"}
    rows = [Row("A", "a", "m a"), Row("B", "b", "m b")]
    lines = list(table(rows, {"a": {**found, "peer_threads": 2, "rounds": 3}}))
    assert lines[2:] == [
        "| A | 1.50 [1.20, 1.75] | 1,500 x/s | 1,000 x/s, 2 threads | 3 | `m a` |",
        "| B | not measured |  |  |  | `m b` |",
    ]
    (line,) = list(table(rows[:1], {"a": {"name": "a", "ratio": 1.5}}))[2:]
    assert line == "| A | 1.50 |  |  | earlier | `m a` |"
    (line,) = list(table(rows[:1], {"a": {"name": "a", "ratio_range": [1.0, 1.25]}}))[2:]
    assert line == "| A | 1.00 to 1.25 |  |  | earlier | `m a` |"


def _report(agent: str, time_s: float, steps: int) -> dict[str, object]:
    return {"process": agent, "time": time_s, "metrics": {"agent/env_steps_total": steps}}


def test_env_steps_are_counted_between_the_warm_up_and_the_agents_last_report() -> None:
    lines = [_report("agent-0", 0.0, 50), _report("agent-1", 1.0, 50), _report("agent-0", 2.0, 150)]
    lines += [_report("agent-1", 3.0, 150), _report("agent-0", 4.0, 350), _report("agent-1", 60.0, 160)]
    assert agent_speed(lines, warm_up=200) == (500 - 200) / (4.0 - 2.0)
    assert agent_speed(lines) == (500 - 50) / 4.0
    with pytest.raises(RuntimeError, match="after 500 env steps"):
        agent_speed(lines, warm_up=500)
