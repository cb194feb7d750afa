"""When a batch begins: deadlines, the time that acting takes, and clients that are too slow to wait for."""

from __future__ import annotations

import pytest

from surreal.rlx.pool.gathering import Gathering


def test_a_window_begins_when_a_batch_could_begin() -> None:
    assert Gathering(0.5, None).end_s(oldest_s=3.0, now_s=10.0) == 10.5


def test_a_deadline_counts_from_the_oldest_request_and_leaves_time_to_act() -> None:
    gathering = Gathering(0.5, 0.02)
    assert gathering.end_s(10.0, 10.001) == pytest.approx(10.02)
    gathering.note_acting(0.005)
    assert gathering.end_s(10.0, 10.001) == pytest.approx(10.015)
    assert gathering.end_s(9.98, 10.001) < 10.001  # it has waited long enough


def test_a_slower_batch_counts_at_once_and_a_faster_one_little_by_little() -> None:
    gathering = Gathering(0.0, 1.0)
    for seconds in (0.1, 0.5, 0.1):
        gathering.note_acting(seconds)
    assert gathering.end_s(0.0, 0.0) == pytest.approx(1.0 - (0.9 * 0.5 + 0.1 * 0.1))
    for _ in range(100):
        gathering.note_acting(0.1)
    assert gathering.end_s(0.0, 0.0) == pytest.approx(0.9, abs=0.001)


def test_nobody_waits_for_slow_clients_until_they_are_fast_again() -> None:
    gathering = Gathering(0.0, 1.0)
    for _ in range(20):
        gathering.note_gain(0)
    waits = []
    for _ in range(64):
        gathering.note_acting(0.0)
        waits.append(gathering.end_s(0.0, 0.0) > 0.0)
    assert waits.count(True) == 2  # tried now and then
    gathering.note_gain(10)
    gathering.note_acting(0.0)
    assert gathering.end_s(0.0, 0.0) > 0.0
