"""Credit: each shard's part of what agents may still insert."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.replay.stream.limiter import Credit, SamplesPerInsert

LEASE_S = 0.001


def make_owner(steps: int, credit_steps: int | None, *, is_away: bool = False, age_s: float = 0.0) -> Any:
    stream = SimpleNamespace(client=SimpleNamespace(is_away=is_away))
    return SimpleNamespace(
        steps=steps, credit_steps=credit_steps, last_tick_s=time.monotonic() - age_s, stream=stream
    )  # fmt: skip


@pytest.mark.parametrize(("is_away", "spent"), [(False, 80), (True, 50)])
def test_what_a_shard_was_granted_counts_as_spent_until_it_is_heard_of_or_is_away(is_away: bool, spent: int) -> None:
    """A learner that was suspended for long does not know what agents have inserted meanwhile."""
    credit = Credit(SamplesPerInsert(1.0, 50, 50.0), lease_s=LEASE_S)
    total = credit.total(10)
    assert total == 110
    asked, other = make_owner(20, 40), make_owner(50, 80, is_away=is_away, age_s=60.0)
    assert credit.credit_of(asked, [asked, other], samples=10) == min(total - spent, 20 + 40 // (1 if is_away else 2))


def test_where_in_the_band_sampling_is_counts_from_the_base() -> None:
    credit = Credit(SamplesPerInsert(1.0, 50, 50.0), lease_s=LEASE_S)
    credit.rebase(1000, 400)
    assert credit.position(1150, 500) == 0.5
    assert credit.edges(1150) == (450, 550)
    assert (credit.position(1150, 450), credit.position(1150, 550)) == (0.0, 1.0)
    without = Credit(None, lease_s=LEASE_S)
    assert (without.position(1150, 500), without.edges(1150)) == (None, None)
