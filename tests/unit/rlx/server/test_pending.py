"""Which rewards may still change, on a clock of the test."""

from __future__ import annotations

from itertools import pairwise

from surreal.rlx.pool.batches import FinalEvent
from surreal.rlx.server.pending import PendingSteps


class World:
    """Pending steps with a clock, and what they report."""

    def __init__(self, obs_bytes: int = 8) -> None:
        self.now = 0.0
        self.final: list[FinalEvent] = []
        self.steps = PendingSteps(100.0, obs_bytes, self.final.append, lambda: self.now)

    def expect(self, slot: int = 0, within_s: float = 10.0) -> int:
        if slot in self.steps.slots:
            self.steps.count_row(slot)
        return self.steps.expect(slot, within_s, is_recorded=True)


def test_an_amendment_is_taken_before_its_deadline_and_refused_at_it() -> None:
    world = World()
    first, second = world.expect(), world.expect()
    world.now = 9.9
    assert world.steps.amend(first, 1.5)
    world.now = 10.0
    assert not world.steps.amend(second, 2.5)
    assert world.final == [FinalEvent(first, 1.5)]
    world.steps.sweep()
    world.steps.sweep()
    assert world.final == [FinalEvent(first, 1.5), FinalEvent(second, None)]
    assert world.steps.metrics() == {
        "rlx/amended_rewards_total": 1,
        "rlx/expired_rewards_total": 1,
        "rlx/refused_amendments_total": 1,
    }


def test_a_client_that_sends_too_fast_loses_its_oldest_pending_steps_and_no_other_does() -> None:
    world = World(obs_bytes=(64 << 20) // 4 - 2048)  # four rows
    other = world.expect(1)
    numbers = [world.expect() for _ in range(3)]
    for _ in range(2):
        world.steps.count_row(0)
    assert world.final == []
    for _ in range(2):
        world.steps.count_row(0)
    assert world.final == [FinalEvent(numbers[0], None), FinalEvent(numbers[1], None)]
    assert world.steps.amend(numbers[2], 1.0) and world.steps.amend(other, 1.0)
    assert not world.steps.amend(numbers[0], 1.0)
    for slot in (0, 1):
        world.steps.count_row(slot)
    assert not world.steps.slots  # nothing is counted any longer


def test_numbers_are_exact_in_json_and_cannot_be_guessed() -> None:
    world = World()
    numbers = [world.expect() for _ in range(50)]
    assert len(set(numbers)) == 50
    assert all(0 < number < 2**53 for number in numbers)
    assert min(abs(a - b) for a, b in pairwise(numbers)) > 1000
