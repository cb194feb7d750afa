"""The checkpoints of one run in several places: what is read from where, and what a place that fails changes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from surreal.base.checkpoint import CheckpointStore, RunCheckpoints, open_checkpoint
from surreal.base.checkpoint.run import Uploads
from surreal.base.checkpoint.store import Ranking, Round
from surreal.base.errors import CheckpointError, DivergedError, UnreadableError

TIMEOUT_S = 30.0


class AwayStore(CheckpointStore):
    """Cannot be reached."""

    def names(self) -> list[str]:
        raise UnreadableError(f"{self.folder} cannot be listed: no answer")

    def put(self, *_: object) -> str:
        raise CheckpointError(f"{self.folder} could not be written: no answer")


def save(checkpoints: RunCheckpoints | CheckpointStore, step: int) -> str:
    return checkpoints.save(step, {"weight": torch.full((2,), float(step))}, {"kind": "learner"})


def wait_for_uploads(checkpoints: RunCheckpoints) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while checkpoints.metrics()["learner/checkpoint_uploads_pending_count"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def own(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "own", keep=2)


@pytest.fixture
def other(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "other", keep=3)


def test_every_place_gets_each_checkpoint_and_keeps_its_own_number(
    own: CheckpointStore, other: CheckpointStore
) -> None:
    for step in (1, 2, 3, 4, 5):
        checkpoints = RunCheckpoints(own, [other])
        assert save(checkpoints, step) == own.path_of(step)
        checkpoints.finish(TIMEOUT_S)
    assert (own.steps(), other.steps()) == ([4, 5], [3, 4, 5])
    assert Path(own.path_of(5)).read_bytes() == Path(other.path_of(5)).read_bytes()


def test_the_newest_whole_one_is_found_wherever_it_is(
    own: CheckpointStore, other: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = RunCheckpoints(own, [other])
    assert checkpoints.newest_whole() is None
    save(own, 2)
    newest = Path(save(other, 3))
    found = checkpoints.newest_whole()
    assert found is not None
    assert found.path == str(newest)
    assert checkpoints.is_own(found)
    newest.write_bytes(newest.read_bytes()[:-1])  # an upload that was cut off
    found = checkpoints.newest_whole()
    assert found is not None
    assert found.path == own.path_of(2)
    assert "is cut off" in caplog.text
    save(other, 2)
    found = checkpoints.newest_whole()
    assert found is not None
    assert found.path == own.path_of(2), "the same one is read from this machine"


def test_a_fresh_machine_begins_with_what_is_elsewhere(own: CheckpointStore, other: CheckpointStore) -> None:
    save(other, 30)
    save(other, 40)
    for checkpoints in (RunCheckpoints(own, [other]), RunCheckpoints(None, [other])):
        newest = checkpoints.newest_whole()
        assert newest is not None
        assert (newest.step, checkpoints.newest_step, checkpoints.load("0000000030.safetensors").step) == (40, 40, 30)
        assert checkpoints.names() == ["0000000030.safetensors", "0000000040.safetensors"]


def test_a_place_that_is_away_is_passed_over_if_another_has_one(
    own: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = RunCheckpoints(own, [AwayStore(tmp_path / "away")])
    with pytest.raises(UnreadableError, match="away cannot be listed: no answer"):
        checkpoints.newest_whole()  # nobody may begin anew beside checkpoints that are only out of sight
    save(own, 1)
    found = checkpoints.newest_whole()
    assert found is not None
    assert found.step == 1
    assert "existing checkpoints cannot be seen: " in caplog.text


def test_a_place_that_fails_costs_nothing_and_is_said_at_the_end(
    own: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = RunCheckpoints(own, [AwayStore(tmp_path / "away")])
    with caplog.at_level(logging.WARNING):
        save(checkpoints, 1)
        save(checkpoints, 2)
        checkpoints.finish(0.0)
    assert own.steps() == [1, 2]
    last = caplog.records[-1].getMessage()
    assert last.startswith(f"the last checkpoint {tmp_path}/away/0000000002.safetensors did not arrive: ")
    assert last.endswith(f"; it is in {tmp_path}/own")


def test_the_best_outlive_the_newest_in_all_places_and_are_restored(
    own: CheckpointStore, other: CheckpointStore
) -> None:
    rounds = [Round(float(step), step, mean) for step, mean in ((1, 5.0), (2, 9.0), (3, 1.0), (5, 7.0), (7, 8.0))]
    known = list[Round]()
    for store in (own, other):
        store.keep, store.keep_best = 1, 2
    checkpoints = RunCheckpoints(own, [other], rounds=lambda: known)
    checkpoints.begin()
    for step in (1, 2, 3, 4, 5):
        known[:] = [each for each in rounds if each.updates <= step]
        save(checkpoints, step)
        wait_for_uploads(checkpoints)
    checkpoints.finish(TIMEOUT_S)
    assert (own.steps(), other.steps()) == ([2, 5], [2, 5])
    assert open_checkpoint(f"{other.folder}/best").step == 2
    assert open_checkpoint(f"{other.folder}/latest").step == 5
    known[:] = rounds
    later = RunCheckpoints(own, rounds=lambda: known)  # goes on from 5: what came to 7 is lost
    later.begin()
    save(later, 6)
    save(later, 8)
    assert own.steps() == [2, 5, 8]


def test_the_age_is_that_of_the_newest_checkpoint_in_the_place_that_is_most_behind(
    own: CheckpointStore, place: SlowPlace
) -> None:
    now = [100.0]
    checkpoints = RunCheckpoints(own, [place], clock=lambda: now[0])
    age_s: Callable[[], float] = lambda: checkpoints.metrics()["learner/checkpoint_age_s"]  # noqa: E731
    now[0] = 107.0
    assert age_s() == 7.0
    save(checkpoints, 1)
    assert age_s() == 7.0, "it is in one place only"
    now[0] = 110.0
    assert place.has_begun.acquire(timeout=TIMEOUT_S)
    let_go_on(place)
    wait_for_uploads(checkpoints)
    assert age_s() == 3.0, "it was made at 107, however long its way was"
    checkpoints.finish(TIMEOUT_S)


def test_a_checkpoint_of_an_earlier_process_has_its_age(own: CheckpointStore) -> None:
    written_s = time.time() - 500.0
    os.utime(save(own, 1), (written_s, written_s))
    checkpoints = RunCheckpoints(own, clock=lambda: 0.0)
    checkpoints.begin()
    assert 500.0 <= checkpoints.metrics()["learner/checkpoint_age_s"] < 500.0 + TIMEOUT_S
    save(checkpoints, 2)
    assert checkpoints.metrics()["learner/checkpoint_age_s"] == 0.0


def test_what_diverged_is_written_nowhere(own: CheckpointStore, other: CheckpointStore) -> None:
    checkpoints = RunCheckpoints(own, [other])
    with pytest.raises(DivergedError):
        checkpoints.save(1, {"weight": torch.tensor([torch.nan])}, {})
    checkpoints.finish(TIMEOUT_S)
    assert (own.steps(), other.steps()) == ([], [])


def test_what_is_saved_is_what_was_there_then(other: CheckpointStore) -> None:
    """The learner goes on at once, with the same tensors."""
    checkpoints = RunCheckpoints(None, [other])
    weight = torch.ones(1000)
    checkpoints.save(1, {"weight": weight}, {})
    weight.fill_(2.0)
    checkpoints.finish(TIMEOUT_S)
    assert other.load("0000000001.safetensors").tensors["weight"].unique().tolist() == [1.0]


def test_a_folder_without_whole_or_scored_checkpoints_has_neither_latest_nor_best(own: CheckpointStore) -> None:
    with pytest.raises(CheckpointError, match=r"holds no whole checkpoint$"):
        open_checkpoint(f"{own.folder}/latest")
    save(own, 1)
    with pytest.raises(CheckpointError, match="with a score"):
        open_checkpoint(f"{own.folder}/best")


def test_a_run_needs_a_place() -> None:
    with pytest.raises(ValueError, match="need a place"):
        RunCheckpoints(None)


TIMEOUT_S = 30.0


class SlowPlace(CheckpointStore):
    """Takes a checkpoint when a test lets it, and fails as often as a test says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, keep=100)
        self.has_begun, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.failures = 0

    def put(self, step: int, data: bytes, ranking: Ranking | None = None) -> str:
        self.has_begun.release()
        assert self.may_go_on.acquire(timeout=TIMEOUT_S)
        if self.failures:
            self.failures -= 1
            raise CheckpointError("no answer")
        return super().put(step, data, ranking)


@pytest.fixture
def place(tmp_path: Path) -> SlowPlace:
    return SlowPlace(tmp_path)


def let_go_on(place: SlowPlace, times: int = 100) -> None:
    place.may_go_on.release(times)


def test_newer_ones_replace_the_one_that_waits_and_nobody_is_held_up(place: SlowPlace) -> None:
    uploads = Uploads(place)
    uploads.offer(1, b"1", Ranking())
    assert place.has_begun.acquire(timeout=TIMEOUT_S)
    for step in (2, 3, 4):  # returns although the place does not
        uploads.offer(step, bytes([step]), Ranking())
    assert (uploads.replaced, uploads.sent, uploads.is_pending) == (2, 0, True)
    let_go_on(place)
    assert uploads.finish(TIMEOUT_S) == ""
    assert (place.steps(), uploads.sent, uploads.is_pending) == ([1, 4], 2, False)


def test_what_failed_is_tried_again_and_said_once(place: SlowPlace, caplog: pytest.LogCaptureFixture) -> None:
    place.failures = 3
    let_go_on(place)
    uploads = Uploads(place)
    with caplog.at_level(logging.WARNING):
        uploads.offer(7, b"7", Ranking())
        assert uploads.finish(TIMEOUT_S) == ""
    assert (place.steps(), uploads.failures, uploads.sent, uploads.replaced) == ([7], 3, 1, 0)
    assert caplog.text.count("no answer; learning continues") == 1


def test_what_failed_gives_way_to_a_newer_one(place: SlowPlace) -> None:
    place.failures = 1
    uploads = Uploads(place)
    uploads.offer(1, b"1", Ranking())
    assert place.has_begun.acquire(timeout=TIMEOUT_S)
    uploads.offer(2, b"2", Ranking())
    let_go_on(place)
    assert uploads.finish(TIMEOUT_S) == ""
    assert (place.steps(), uploads.replaced) == ([2], 1)


def test_the_end_waits_only_so_long_and_says_what_did_not_arrive(place: SlowPlace) -> None:
    uploads = Uploads(place)
    uploads.offer(1, b"1", Ranking())
    assert uploads.finish(0.01) == f"{place.folder}/0000000001.safetensors did not arrive: its upload takes too long"
    let_go_on(place)
    uploads.offer(2, b"2", Ranking())  # too late
    assert not uploads.is_pending or place.has_begun.acquire(timeout=TIMEOUT_S)


def test_a_place_that_is_away_to_the_end_is_the_reason(place: SlowPlace) -> None:
    place.failures = 10**6
    let_go_on(place, 10**6)
    uploads = Uploads(place)
    uploads.offer(1, b"1", Ranking())
    assert place.has_begun.acquire(timeout=TIMEOUT_S)
    assert uploads.finish(1.0).endswith("did not arrive: no answer")


def test_pauses_grow_while_it_fails_and_end_when_it_works() -> None:
    now, due = [0.0], list[float]()
    failing: Callable[..., Any] = lambda *_: (_ for _ in ()).throw(CheckpointError("away"))  # noqa: E731
    place: Any = SimpleNamespace(folder="x", path_of=str, put=failing)
    uploads = Uploads(place, clock=lambda: now[0])
    uploads._thread = threading.current_thread()  # the test takes the turns itself
    uploads.offer(1, b"", Ranking())
    for _ in range(9):
        uploads.step()
        due.append(uploads._due_s - now[0])
        now[0] = uploads._due_s
    for pause_s, most_s in zip(due, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert most_s / 2 <= pause_s <= most_s
    place.put = lambda *_: None
    uploads.step()
    assert (uploads.sent, uploads.failures) == (1, 9)
