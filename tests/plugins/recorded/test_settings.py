"""The settings of runs, and how they differ."""

from __future__ import annotations

from pathlib import Path

from surreal.plugins.recorded.settings import HIDDEN, SettingRow, compare_settings, flat_settings, read_settings
from tests.recorded import record_run


def test_settings_have_dotted_names_and_differences_come_first(tmp_path: Path) -> None:
    first = read_settings(record_run(tmp_path / "a"))
    second = read_settings(record_run(tmp_path / "b", seed=3, overrides=["learner.batch_size=32"]))
    rows = compare_settings([first, second])
    assert [row for row in rows if row.differs] == rows[:2]
    assert rows[:2] == [
        SettingRow("seed", ("0", "3")),
        SettingRow("learner.batch_size", ("128", "32")),
    ]
    assert {row.key for row in rows} > {"env.id", "agent.exploration.type", "run.max_env_steps"}


def test_a_setting_that_one_run_lacks_is_a_difference() -> None:
    (row,) = compare_settings([{"a": None}, {}])
    assert (row.values, row.differs) == (("null", None), True)


def test_nothing_secret_is_shown() -> None:
    plain = {
        "redis": {"address": "redis://:hunter2@host"},
        "env": {"kwargs": {"api_key": "hunter2", "url": "https://me:hunter2@host/x", "max_tokens": 5}},
        "checkpoint": {"stores": ["s3://key:hunter2@bucket"]},
    }
    found = flat_settings(plain)
    assert "hunter2" not in str(found)
    assert found["env.kwargs.api_key"] == HIDDEN
    assert found["env.kwargs.max_tokens"] == 5


def test_a_file_that_makes_no_sense_has_no_settings(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == {}
    (tmp_path / "app.yaml").write_text("a: [")
    assert read_settings(tmp_path) == {}
    (tmp_path / "app.yaml").write_bytes(b"\xff\xfe")
    assert read_settings(tmp_path) == {}


def test_a_file_that_grows_when_it_is_read_has_no_more_settings_than_can_be(tmp_path: Path) -> None:
    doubled = "".join(f"k{i + 1}: &k{i + 1} {{x: *k{i}, y: *k{i}}}\n" for i in range(40))
    (tmp_path / "app.yaml").write_text(f"k0: &k0 {{x: 1, y: 2}}\n{doubled}")
    assert len(read_settings(tmp_path)) == 5000
