"""What a run has recorded, read while it grows."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from surreal.base.system.files import older_path, rotate
from surreal.plugins.recorded import files as lines
from surreal.plugins.recorded import history as module
from surreal.plugins.recorded.files import RunHistory
from surreal.plugins.recorded.history import RETURN, History, Series
from tests.recorded import STARTED, append, record_run, write_metrics, write_round


def read(folder: Path) -> RunHistory:
    history = RunHistory(folder)
    while not history.update():
        pass
    return history


def test_metrics_of_each_process_and_rounds_are_curves(tmp_path: Path) -> None:
    history = read(record_run(tmp_path / "run", peak=50.0))
    assert history.names() == [
        "agent/env_steps_per_s",
        "agent/episode_return",
        "eval/episode_length",
        RETURN,
        "eval/episode_return_std",
        "learner/loss",
        "learner/updates_total",
    ]
    (rows,) = history.curves("agent/episode_return").values()
    np.testing.assert_allclose(rows.step, np.arange(0, 1001, 10))
    np.testing.assert_allclose(rows.value, np.arange(101) / 2)
    np.testing.assert_allclose(rows.updates, np.arange(101))  # by the time at which it was reported
    (rounds,) = history.curves(RETURN).values()
    np.testing.assert_allclose(rounds.value, np.arange(0, 51, 5))
    np.testing.assert_allclose(rounds.updates, np.arange(0, 101, 10))
    np.testing.assert_allclose(rounds.time - STARTED, np.arange(11))
    assert history.started == STARTED
    assert (history.skipped, history.dropped) == (0, 0)


def test_older_parts_of_files_are_read_before_the_newer_ones(tmp_path: Path) -> None:
    whole = read(record_run(tmp_path / "whole"))
    folder = record_run(tmp_path / "parts")
    growing = RunHistory(folder)
    growing.update()
    for path in (folder / "metrics.jsonl", folder / "eval" / "scores.jsonl"):
        texts = path.read_text().splitlines(keepends=True)
        assert rotate(path, max_bytes=1)
        older_path(path).write_text("".join(texts[:-20]))
        path.write_text("".join(texts[-20:]))
    while not growing.update():
        pass
    for history in (growing, read(folder)):
        assert history.names() == whole.names()
        for name in whole.names():
            (found,), (expected,) = history.curves(name).values(), whole.curves(name).values()
            np.testing.assert_array_equal(found.step, expected.step)
            np.testing.assert_array_equal(found.value, expected.value)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e308", "NaN", "1" + 400 * "0", '"inf"'])
def test_numbers_that_cannot_be_drawn_are_in_no_curve(tmp_path: Path, number: str) -> None:
    before = read(record_run(tmp_path))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        for time_s, step, value in ((number, 5, 1.0), (1000.0, number, 1.0), (1000.0, 5, number)):
            line = f'{{"time": {time_s}, "process": "learner", "step": {step}, "metrics": {{"learner/loss": {value}}}}}'
            file.write(f"{line}\n")
        file.write("[" * 9999 + "\n")
    with (tmp_path / "eval" / "scores.jsonl").open("a") as file:
        for time_s, step, value in (
            (number, 5, 1.0),
            (1000.0, "-1" if number == "NaN" else number, 1.0),
            (1.0, 5, number),
        ):
            line = (
                f'"time": {time_s}, "global_step": {step}, "mean_return": {value}, "std_return": 0.0, "mean_length": 1'
            )
            file.write(f'{{"kind": "round", {line}}}\n')
        file.write("[" * 9999 + "\n")
    history = read(tmp_path)
    for name in ("learner/loss", RETURN):
        np.testing.assert_equal(history.curves(name), before.curves(name))
    assert history.skipped + sum(history.not_finite.values()) == 8


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    history = read(record_run(tmp_path))
    before = history.read_bytes
    assert before == history.total_bytes
    write_metrics(tmp_path, "agent-1", 2000, {"agent/episode_return": 7.0})
    assert history.update()
    assert list(history.curves("agent/episode_return")) == ["agent-0", "agent-1"]
    assert before < history.read_bytes == history.total_bytes


def test_reading_stops_at_a_number_of_bytes_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1000)
    record_run(tmp_path)
    history = RunHistory(tmp_path)
    assert not history.update(max_bytes=2000)
    assert 1000 < history.read_bytes <= 3000
    while not history.update(max_bytes=2000):
        pass
    assert history.curves("learner/loss")["learner"].value.tolist() == [1.0 / (i + 1) for i in range(101)]


def test_lines_that_make_no_sense_are_passed_over_and_counted(tmp_path: Path) -> None:
    write_metrics(tmp_path, "learner", 1, {"learner/loss": 1.0})
    bad = ["{", "[]", "7", "{}", '{"time": "x", "process": "p", "step": 1, "metrics": {"a": 1}}', "\x00", "[" * 5000]
    bad += [json.dumps({"time": 1.0, "process": "p", "step": 1, "metrics": metrics}) for metrics in ([1], {"a": "b"})]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in bad))
    write_metrics(tmp_path, "learner", 2, {"learner/loss": 2.0})
    append(tmp_path / "eval" / "scores.jsonl", {"kind": "round", "mean_return": "many"})
    history = read(tmp_path)
    assert history.skipped == len(bad) + 1
    assert history.names() == ["learner/loss"]
    assert history.curves("learner/loss")["learner"].value.tolist() == [1.0, 2.0]


def test_numbers_that_are_not_finite_are_counted_and_in_no_curve(tmp_path: Path) -> None:
    write_metrics(tmp_path, "learner", 1, {"learner/loss": "nan", "learner/kl": 1})
    write_round(tmp_path, 0, None)
    write_round(tmp_path, 1, 3.0)
    history = read(tmp_path)
    assert history.not_finite == {"learner/loss": 1, RETURN: 1}
    assert "learner/loss" not in history.names()
    assert history.curves(RETURN)["eval"].value.tolist() == [3.0]
    assert history.skipped == 0


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    record_run(tmp_path)
    history = read(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    write_metrics(tmp_path, "learner", 1, {"learner/kl": 1.0})
    while not history.update():
        pass
    assert history.names() == sorted([*module.ROUND_METRICS, "learner/kl"])


def test_there_are_no_more_curves_than_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CURVES", 2)
    write_metrics(tmp_path, "learner", 1, {"a/x": 1.0, "a/y": 1.0, "a/z": 1.0})
    history = read(tmp_path)
    assert (history.names(), history.dropped) == (["a/x", "a/y"], 1)


def test_others_look_while_one_thread_reads() -> None:
    history, is_over = History(points=50), threading.Event()

    def look() -> int:
        looks = 0
        while not is_over.is_set() or not looks:
            for name in history.names():
                (rows,) = history.curves(name).values()
                assert (np.diff(rows.step) > 0).all()
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        lookers = [pool.submit(look) for _ in range(2)]
        for i in range(3000):
            history.add("learner", float(i), float(i), {f"m/{i % 300}": 1.0})
        is_over.set()
        assert all(looker.result() for looker in lookers)


def test_a_series_is_thinned_to_means_and_loses_nothing() -> None:
    series = Series(2, points=100)
    for i in range(10_000):
        series.add((float(i), 2.0 * i))
        assert len(series.table()) <= 300 or i > 300  # never much longer than it may be
    table = series.table()
    assert 100 <= len(table) <= 200
    assert series.stride == 64
    whole = table[: 10_000 // 64]
    np.testing.assert_allclose(whole[:, 0], np.arange(len(whole)) * 64 + 31.5)
    np.testing.assert_allclose(table[:, 1], 2 * table[:, 0])
    assert table[-1, 0] == np.mean(np.arange(10_000 // 64 * 64, 10_000))  # what has come of the last one
