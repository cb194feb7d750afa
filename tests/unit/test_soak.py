"""The soak test's slopes: fits after the warm-up, of processes that lived until the end."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import Series, Slope, append, fit, size_of, table


def series(**values: list[float]) -> Series:
    """Make series of one sample a minute, of the RSS of each process."""
    return {
        (name, "RSS, MiB"): [(60.0 * minute, value) for minute, value in enumerate(found)]
        for name, found in values.items()
    }


def test_slopes_are_those_after_the_warm_up() -> None:
    warm_up, rest = [5.0 * minute for minute in range(30)], [200.0 + minute / 10 for minute in range(60)]
    (slope,) = fit(series(learner=[*warm_up, *rest]), warm_up=1 / 3)
    assert slope.per_hour == pytest.approx(6.0)
    assert slope[:3] == ("learner", "RSS, MiB", pytest.approx(np.mean(rest[:6])))
    assert (slope.last, slope.most) == (pytest.approx(np.mean(rest[-6:])), pytest.approx(rest[-1]))


def test_processes_that_did_not_live_as_long_are_left_out() -> None:
    flat = [7.0] * 90
    found = series(agent=flat, starting=flat[:40], late=flat)
    found["late", "RSS, MiB"] = found["late", "RSS, MiB"][60:]
    assert [(each.process, each.per_hour) for each in fit(found)] == [("agent", pytest.approx(0.0, abs=1e-9))]


def test_rows_are_appended_below_one_header(tmp_path: Path) -> None:
    slopes = [Slope("learner", "threads", 8.0, 8.0, 9.0, -0.25)]
    for minutes in (5.0, 60.0):
        append(tmp_path / "soak.csv", slopes, "cartpole-dqn", minutes)
    rows = list(csv.DictReader((tmp_path / "soak.csv").read_text().splitlines()))
    assert [row["minutes"] for row in rows] == ["5", "60"]
    assert (rows[0]["process"], rows[0]["per_hour"], rows[0]["preset"]) == ("learner", "-0.25", "cartpole-dqn")
    assert "| learner | threads | 8.0 | 8.0 | 9.0 | -0.25 |" in table(slopes)


def test_size_is_that_of_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"123")
    (tmp_path / "d").write_bytes(b"4567")
    assert (size_of(tmp_path), size_of(tmp_path / "d"), size_of(tmp_path / "none")) == (7, 4, 0)
