"""Who is admitted: a number of sessions, and the memory they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.rlx.server.admission import Admission, available_bytes, used_bytes

MIB = 1 << 20


class Machine:
    """Memory and time as a test wants them."""

    def __init__(self) -> None:
        self.used, self.available, self.now = 100 * MIB, 1000 * MIB, 0.0

    def admission(self, max_sessions: int | None = None, reserve: int = 0) -> Admission:
        return Admission(
            max_sessions, reserve, read_used=lambda: self.used, read_available=lambda: self.available,
            clock=lambda: self.now,
        )  # fmt: skip


def test_number_of_sessions_is_bounded() -> None:
    admission = Machine().admission(2)
    assert [admission.admits(number) for number in (0, 1, 2)] == [True, True, False]
    with pytest.raises(ValueError, match="max_sessions is 0"):
        Machine().admission(0)


def test_session_needs_what_the_process_has_grown_by_for_each_one() -> None:
    machine = Machine()
    admission = machine.admission()
    for _ in range(100):  # with two sessions it takes some measurements to believe it
        machine.used, machine.available, machine.now = 300 * MIB, 250 * MIB, machine.now + 1.0
        assert admission.admits(2)
    assert admission.session_bytes == pytest.approx(100 * MIB, rel=0.01)
    machine.now += 0.01
    # The one just admitted has not taken its memory yet, and counts all the same.
    assert admission.admits(3)
    assert not admission.admits(4)


def test_crowd_is_believed_at_once() -> None:
    machine = Machine()
    admission = machine.admission()
    machine.used, machine.now = 1100 * MIB, 1.0
    admission.admits(1000)
    assert admission.session_bytes == pytest.approx(MIB, rel=0.05)


def test_memory_that_is_free_again_admits_again() -> None:
    machine = Machine()
    admission = machine.admission(reserve=200 * MIB)
    machine.used, machine.available, machine.now = 6500 * MIB, 250 * MIB, 10.0
    assert not admission.admits(64)
    machine.available, machine.now = 301 * MIB, 20.0
    assert admission.admits(64)


def test_need_shrinks_again() -> None:
    machine = Machine()
    admission = machine.admission()
    machine.used, machine.now = 3300 * MIB, 10.0
    admission.admits(32)
    high = admission.session_bytes
    machine.used, machine.now = 132 * MIB, 20.0
    admission.admits(32)
    assert high > 60 * MIB
    for _ in range(10):
        machine.now += 1.0
        admission.admits(32)
    assert admission.session_bytes < 2 * MIB


def test_halves_of_messages_are_no_part_of_a_session() -> None:
    machine = Machine()
    admission = machine.admission()
    machine.used, machine.available, machine.now = 1700 * MIB, 20_000 * MIB, 1.0
    assert admission.admits(100, lambda: 1500 * MIB)
    assert admission.session_bytes <= MIB
    # Freed, they stay with the process for a while: they are not taken for what the next sessions cost.
    machine.now += 1.0
    assert [admission.admits(12 + number, lambda: 0) for number in range(300)] == [True] * 300
    # Those between two measurements count too.
    machine.used = 3000 * MIB
    admission.note_buffered(2800 * MIB)
    machine.now += 1.0
    admission.admits(100, lambda: 0)
    assert admission.session_bytes <= 2 * MIB


def test_memory_of_sessions_that_are_gone_is_not_the_next_ones() -> None:
    machine = Machine()
    admission = machine.admission()
    machine.used, machine.now = 900 * MIB, 1.0
    assert admission.admits(0)
    machine.used, machine.now = 910 * MIB, 2.0
    assert admission.admits(1)
    assert admission.session_bytes <= MIB


def test_burst_is_measured_again_before_anyone_is_refused() -> None:
    machine = Machine()
    admission = machine.admission()
    for _ in range(100):  # one session, and all that the first one brought with it
        machine.used, machine.available, machine.now = 200 * MIB, 22_000 * MIB, machine.now + 1.0
        assert admission.admits(1)
    assert admission.session_bytes > 90 * MIB
    for number in range(1000):
        machine.used, machine.now = machine.used + MIB // 20, machine.now + 0.0003
        assert admission.admits(1 + number), number


def test_refusals_measure_now_and_then_only() -> None:
    machine = Machine()
    reads: list[float] = []
    admission = Admission(
        None, 0, read_used=lambda: 0, read_available=lambda: reads.append(machine.now) or -1, clock=lambda: machine.now
    )  # fmt: skip
    for _ in range(1000):
        machine.now += 0.0001
        assert not admission.admits(1)
    assert len(reads) < 10


def test_this_machine_is_measured() -> None:
    assert used_bytes() > MIB
    assert available_bytes() > MIB


def test_a_container_with_less_memory_counts_and_its_file_cache_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"max": "1000", "current": "400", "stat": "anon 350\ninactive_file 50\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr("surreal.rlx.server.admission._CGROUP", tmp_path)
    assert available_bytes() == 650
