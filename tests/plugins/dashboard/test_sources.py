"""What the dashboard knows of runs, and how seldom it asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from surreal.base.errors import SurrealError
from surreal.plugins.dashboard.sources import runs as module
from surreal.plugins.dashboard.sources.live import Live
from surreal.plugins.dashboard.sources.runs import Runs, Seldom, WatchedRun, key_of
from surreal.plugins.recorded import listing
from surreal.plugins.recorded.listing import ListedRun, read_run
from surreal.run.process.run_folder import ADDRESS_NAME, RESULT_NAME
from tests.plugins.dashboard.fakes import FakeLive
from tests.recorded import record_run, write_metrics


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeLive]:
    made: list[FakeLive] = []
    monkeypatch.setattr(FakeLive, "made", made, raising=False)
    return made


def running(folder: Path, address: str = "unix:///redis.sock") -> ListedRun:
    """The run of a folder, made one that goes on."""
    (folder / ADDRESS_NAME).write_text(f"{address}\n{folder.name}\n")
    return replace(read_run(folder), status="running")


def watch(listed: ListedRun, redis: str | None = None) -> WatchedRun:
    return WatchedRun(listed, redis, open_live=cast(Any, FakeLive), live_interval_s=0.0, read_interval_s=0.0)


def test_an_answer_holds_for_a_while() -> None:
    now, asked = [0.0], []
    seldom = Seldom(lambda: asked.append(now[0]) or len(asked), 2.0, clock=lambda: now[0])  # type: ignore[func-returns-value]
    assert [seldom.get(), seldom.get()] == [1, 1]
    now[0] = 1.9
    assert seldom.get() == 1
    now[0] = 2.0
    assert seldom.get() == 2
    assert asked == [0.0, 2.0]


def test_while_one_asks_the_others_have_the_answer_before() -> None:
    may_answer, is_asking, answers = threading.Event(), threading.Event(), iter([1, 2])

    def ask() -> int:
        answer = next(answers)
        if answer == 2:
            is_asking.set()
            assert may_answer.wait(60)
        return answer

    seldom = Seldom(ask, 0.0)
    assert seldom.get() == 1
    slow = threading.Thread(target=seldom.get)
    slow.start()
    assert is_asking.wait(60)
    assert seldom.get() == 1
    may_answer.set()
    slow.join(60)


def test_a_run_that_is_over_is_read_and_nobody_is_asked(tmp_path: Path, made: list[FakeLive]) -> None:
    run = watch(read_run(record_run(tmp_path / "demo")))
    assert run.live() == ""
    assert run.settings()["env.id"] == "CartPole-v1"
    before = run.recorded()
    assert (before.progress, before.skipped, before.problem) == (1.0, 0, "")
    write_metrics(tmp_path / "demo", "learner", 5000, {"learner/loss": 0.5})
    assert run.recorded().history.curves("learner/loss")["learner"].step[-1] == 5000
    with pytest.raises(SurrealError, match="demo is over"):
        run.stop("a test")
    assert made == []


def test_a_run_that_goes_on_is_asked_where_its_folder_says(tmp_path: Path, made: list[FakeLive]) -> None:
    run = watch(running(record_run(tmp_path / "demo")))
    live = run.live()
    assert isinstance(live, Live)
    (opened,) = made
    assert (opened.address, opened.run, opened.more["folder"]) == ("unix:///redis.sock", "demo", tmp_path / "demo")
    assert [run.stop("a test"), run.stop("again")] == [True, False]
    opened.is_away = True
    assert run.live() == "no answer within 2 s"
    # Resumed elsewhere: the old connection is closed.
    run.listed = running(tmp_path / "demo", "other:6379")
    assert isinstance(run.live(), Live)
    assert [each.address for each in made] == ["unix:///redis.sock", "other:6379"]
    assert opened.is_closed
    run.close()
    assert made[1].is_closed


def test_a_run_whose_folder_is_elsewhere_makes_curves_of_what_is_heard(made: list[FakeLive]) -> None:
    run = watch(ListedRun("far", "running", name="cartpole-dqn", is_in_redis=True), "replay-host:6379")
    for _ in range(3):
        history = run.recorded().history
    assert made[0].address == "replay-host:6379"
    assert history.curves("agent/env_steps_per_s")["agent-0"].value.tolist() == [10.0, 20.0, 30.0]
    assert history.curves("agent/env_steps_per_s")["agent-0"].step.tolist() == [340.0] * 3
    assert history.curves("learner/loss")["agent-0"].step.tolist() == [300.0], "an update is shown once"


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = record_run(tmp_path / "demo")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    assert "is a directory" in watch(read_run(folder)).recorded().problem


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    for i in range(3):
        folder = record_run(tmp_path / f"run-{i}")
        result = json.loads((folder / RESULT_NAME).read_text())
        (folder / RESULT_NAME).write_text(json.dumps(result | {"started": 1000.0 + i}))
    runs = Runs([tmp_path], open_live=cast(Any, FakeLive), list_interval_s=0.0)
    yield runs
    runs.close()


def test_runs_are_listed_newest_first_under_keys_that_stay(runs: Runs, tmp_path: Path) -> None:
    assert [run.label for run in runs.listed().values()] == ["run-2", "run-1", "run-0"]
    assert list(runs.listed()) == [key_of(read_run(tmp_path / f"run-{i}")) for i in (2, 1, 0)]
    assert runs.problem() == ""


def test_a_watched_run_is_the_same_until_it_is_let_go(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WATCHED", 2)
    first, second, third = runs.listed()
    watched = runs.watch(first)
    assert watched is not None
    assert runs.watch(second) is not runs.watch(first) is watched
    runs.watch(third)  # in place of the second, which was watched less lately
    assert runs.watch(first) is watched
    assert runs.watch("nothing") is None


def test_a_run_that_was_deleted_is_not_there_any_more(runs: Runs, tmp_path: Path) -> None:
    key = key_of(read_run(tmp_path / "run-1"))
    assert runs.watch(key) is not None
    (tmp_path / "run-1" / "run.id").unlink()
    (tmp_path / "run-1" / RESULT_NAME).unlink()
    assert runs.watch(key) is None


def test_a_redis_that_is_away_is_said_and_the_folders_are_listed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_TIMEOUT_S", 0.1)
    record_run(tmp_path / "demo")
    runs = Runs([tmp_path], f"unix://{tmp_path}/none.sock")
    assert [run.label for run in runs.listed().values()] == ["demo"]
    assert "none.sock" in runs.problem()
