"""Who is admitted: a number of sessions, and the memory they need."""

from __future__ import annotations

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
    assert admission.admits(0)
    machine.used, machine.available, machine.now = 300 * MIB, 250 * MIB, 10.0
    assert admission.admits(2)
    assert admission.session_bytes == 100 * MIB
    # The one just admitted has not taken its memory yet, and counts all the same.
    assert admission.admits(3)
    assert not admission.admits(4)


def test_memory_that_is_free_again_admits_again() -> None:
    machine = Machine()
    admission = machine.admission(reserve=200 * MIB)
    machine.used, machine.available, machine.now = 200 * MIB, 250 * MIB, 10.0
    assert not admission.admits(1)
    machine.available, machine.now = 301 * MIB, 20.0
    assert admission.admits(1)


def test_need_does_not_shrink_when_sessions_end() -> None:
    machine = Machine()
    admission = machine.admission()
    machine.used, machine.now = 200 * MIB, 10.0
    admission.admits(1)
    machine.used, machine.now = 110 * MIB, 20.0
    admission.admits(1)
    assert admission.session_bytes == 100 * MIB


def test_this_machine_is_measured() -> None:
    assert used_bytes() > MIB
    assert available_bytes() > MIB
