"""Sinks: each line of `metrics.jsonl` once, whatever fails; CSV, console, Weights & Biases and MLflow take it."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from surreal.base.system.files import rotate
from surreal.config import load_config
from surreal.run.observers import ConsoleSink, CsvSink, MetricSink, MlflowSink, Numbers, WandbSink
from surreal.run.observers.making import SinkFeeder, make_feeder

HISTOGRAM = '{"time": 1.0, "process": "learner", "step": 1, "histograms": {}}\n'


class Memory(MetricSink):
    """Keeps what it is given, and fails when it should."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.error: Exception | None = None
        self.is_closed = False

    def write(self, numbers: Sequence[Numbers]) -> None:
        if self.error is not None:
            raise self.error
        self.steps += [each.step for each in numbers]

    def close(self) -> None:
        self.is_closed = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(step: int, **values: float | str) -> str:
    metrics = values or {"eval/episode_return": 1.0}
    return json.dumps({"time": 5.0, "process": "agent-0", "step": step, "metrics": metrics}) + "\n"


def append(folder: Path, text: str) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(text)


def test_each_line_is_handed_over_once_and_half_a_line_when_it_is_whole(tmp_path: Path) -> None:
    sink = Memory()
    feeder = SinkFeeder(tmp_path, [("memory", lambda: sink)])
    assert not feeder.step()
    append(tmp_path, line(1) + HISTOGRAM + "no json\n" + line(2) + line(3)[:20])
    assert feeder.step()
    append(tmp_path, line(3)[20:])
    assert feeder.step()
    assert not feeder.step()
    assert sink.steps == [1, 2, 3]


def test_the_rest_of_a_file_that_was_moved_aside_is_handed_over_before_the_new_one(tmp_path: Path) -> None:
    behind, sink = Memory(), Memory()
    feeder = SinkFeeder(tmp_path, [("behind", lambda: behind), ("memory", lambda: sink)], clock=Clock())
    append(tmp_path, line(1))
    assert feeder.step()
    for step in (2, 5):  # twice, so that an older part is replaced
        append(tmp_path, line(step))
        assert rotate(tmp_path / "metrics.jsonl", max_bytes=1)
        assert not rotate(tmp_path / "metrics.jsonl", max_bytes=1)
        append(tmp_path, line(step + 1) + line(step + 2))
        feeder = SinkFeeder(tmp_path, [("behind", lambda: behind), ("memory", lambda: sink)], clock=Clock())
        while feeder.step():
            pass
    assert sink.steps == behind.steps == [*range(1, 8)]


def test_another_process_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    first, second = Memory(), Memory()
    append(tmp_path, line(1))
    feeder = SinkFeeder(tmp_path, [("memory", lambda: first)])
    feeder.step()
    feeder.close()
    append(tmp_path, line(2))
    SinkFeeder(tmp_path, [("memory", lambda: second)]).close()
    assert (first.steps, second.steps) == ([1], [2])
    assert first.is_closed
    assert second.is_closed


def test_a_sink_that_fails_is_behind_alone_and_catches_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad, clock = Memory(), Memory(), Clock()
    bad.error = OSError("away")
    feeder = SinkFeeder(tmp_path, [("good", lambda: good), ("bad", lambda: bad)], clock=clock)
    for step in range(3):
        append(tmp_path, line(step))
        feeder.step()
    assert good.steps == [0, 1, 2]
    assert caplog.text.count("sink bad failed") == 1
    bad.error = None
    assert not feeder.step()  # it is left alone for a while
    clock.now = 60.0
    feeder.step()
    assert bad.steps == [0, 1, 2]


def test_a_sink_that_cannot_be_made_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    good = Memory()

    def fail() -> MetricSink:
        raise ValueError("no")

    append(tmp_path, line(1))
    SinkFeeder(tmp_path, [("bad", fail), ("good", lambda: good)]).close()
    assert good.steps == [1]


def test_more_than_one_block_is_read_to_its_end(tmp_path: Path) -> None:
    sink = Memory()
    append(tmp_path, "".join(line(step, **{f"name-{place}": 1.0 for place in range(50)}) for step in range(2000)))
    assert (tmp_path / "metrics.jsonl").stat().st_size > 1 << 20
    SinkFeeder(tmp_path, [("memory", lambda: sink)]).close()
    assert sink.steps == list(range(2000))


def test_csv_has_one_row_a_number_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    for step in (1, 2):
        CsvSink(tmp_path).write([Numbers(5.0, "learner", step, {"a": 0.1, "b": float("nan")})])
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [(row["step"], row["metric"], row["value"]) for row in rows] == [
        ("1", "a", "0.1"),
        ("1", "b", "nan"),
        ("2", "a", "0.1"),
        ("2", "b", "nan"),
    ]


def test_the_older_rows_of_a_large_csv_are_moved_and_each_part_has_a_header(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path, max_bytes=100)
    for step in range(10):
        sink.write([Numbers(5.0, "learner", step, {"a": 0.1})])
    parts = [(tmp_path / name).read_text().splitlines() for name in ("metrics.csv.older", "metrics.csv")]
    assert [row["step"] for part in parts for row in csv.DictReader(part)] == ["4", "5", "6", "7", "8", "9"]


def test_the_console_shows_what_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(["eval/*"])
    sink.write(
        [Numbers(5.0, "eval", 12000, {"eval/episode_return": 1.5, "other/x": 2.0}), Numbers(5.0, "a", 1, {"b": 1})]
    )
    assert capsys.readouterr().out == "12,000 eval: eval/episode_return 1.5\n"


def test_what_logs_offline_is_made_by_the_last_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that makes one makes a folder of its own."""
    append(tmp_path, line(1))
    package = "surreal.run.observers"
    sinks = [f"sinks=[{{class: {package}.WandbSink, args: {{mode: offline}}}}, {{class: {package}.CsvSink}}]"]
    config = load_config("cartpole-dqn", sinks)
    made: list[str] = []
    memory = Memory()

    def make(sink: WandbSink, *_: Any, mode: str, **__: Any) -> None:
        made.append(mode)
        sink.write, sink.close = memory.write, memory.close  # type: ignore[method-assign]

    monkeypatch.setattr(WandbSink, "__init__", make)
    learner = make_feeder(config, tmp_path, is_last=False, run="r", process="learner")
    assert learner.step()
    append(tmp_path, line(2))
    learner.close()
    assert (made, memory.steps) == ([], [])
    make_feeder(config, tmp_path, is_last=True, run="r", process="collector").close()
    assert (made, memory.steps) == (["offline"], [1, 2])
    assert (tmp_path / "metrics.csv").read_text().count("episode_return") == 2, "the other one got each line once"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_has_it_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    sink = WandbSink("run-1", tmp_path, mode="offline")
    sink.write([Numbers(5.0, "agent-1", 10, {"agent/x": 1.25}), Numbers(6.0, "eval", 20, {"eval/y": 2.5})])
    sink.close()
    (file,) = tmp_path.rglob("run-run-1.wandb")
    # A process of its own writes it.
    deadline = time.monotonic() + 60.0
    while b"eval/y" not in file.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert b"agent-1/agent/x" in file.read_bytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_it_and_a_resumed_run_goes_on_in_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "tracking").as_uri()
    for step in (10, 20):
        sink = MlflowSink("run-1", tracking_uri=uri)
        sink.write([Numbers(5.0, "eval", step, {"eval/y": 0.5 * step, "eval/bad": float("nan")})])
        sink.close()
    client: Any = sink._client
    (run,) = client.search_runs([client.get_experiment_by_name("surreal").experiment_id])
    history = client.get_metric_history(run.info.run_id, "eval/y")
    assert [(each.step, each.value) for each in history] == [(10, 5.0), (20, 10.0)]
    assert run.info.status == "FINISHED"
