"""Checkpoints on their way to a place that is slow, away, or back again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.base.checkpoint.place import Place
from surreal.base.checkpoint.ranking import Ranking
from surreal.base.checkpoint.uploads import Uploads
from surreal.base.errors import CheckpointError

TIMEOUT_S = 30.0


class SlowPlace(Place):
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
    assert caplog.text.count("no answer; learning goes on") == 1


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
