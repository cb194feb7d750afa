"""The samples-per-insert band, and that no allowed setting lets agents and learner wait for each other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.replay.stream.limiter import SamplesPerInsert
from tests.examples import examples


def test_at_the_edges_of_the_band_one_side_waits() -> None:
    band = SamplesPerInsert(ratio=4.0, start_size=100, tolerance=200.0)
    assert [band.position(300, sampled) for sampled in (600, 700, 800, 1000)] == [0.0, 0.25, 0.5, 1.0]
    assert not band.may_sample(300, 1000, 1)
    assert band.credit_steps(600) == 300
    assert (band.position(0, 0), band.position(10_000, 0)) == (1.0, 0.0)


def test_the_learner_waits_for_the_start_and_at_the_upper_edge() -> None:
    band = SamplesPerInsert(ratio=4.0, start_size=100, tolerance=50.0)
    assert not band.may_sample(inserted=99, sampled=0, batch_size=1)
    assert band.may_sample(inserted=100, sampled=0, batch_size=50)
    assert not band.may_sample(inserted=100, sampled=0, batch_size=51)
    assert band.may_sample(inserted=110, sampled=58, batch_size=32)  # 58 + 32 = 4 * 10 + 50
    assert not band.may_sample(inserted=110, sampled=59, batch_size=32)


def test_agents_stop_at_the_lower_edge() -> None:
    band = SamplesPerInsert(ratio=4.0, start_size=100, tolerance=50.0)
    assert band.credit_steps(sampled=0) == 112  # 4 * 12 - 50 <= 0 < 4 * 13 - 50
    assert band.credit_steps(sampled=40) == 122


@given(
    ratio=st.floats(0.01, 64),
    start_size=st.integers(1, 10_000),
    tolerance=st.floats(1, 1e5),
    sampled=st.integers(0, 1_000_000),
)
def test_credit_is_the_largest_count_inside_the_band(
    ratio: float, start_size: int, tolerance: float, sampled: int
) -> None:
    band = SamplesPerInsert(ratio, start_size, tolerance)
    credit = band.credit_steps(sampled)
    slack = 1e-6 * (sampled + tolerance + ratio * start_size)
    assert ratio * (credit - start_size) - tolerance <= sampled + slack
    assert ratio * (credit + 1 - start_size) - tolerance > sampled - slack


@pytest.mark.parametrize(
    ("ratio", "start_size", "tolerance"), [(0.0, 1, 1.0), (-1.0, 1, 1.0), (1.0, 0, 1.0), (1.0, 1, 0.0)]
)
def test_impossible_settings_are_refused(ratio: float, start_size: int, tolerance: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        SamplesPerInsert(ratio, start_size, tolerance)


def test_a_band_narrower_than_a_batch_is_refused_with_the_value_that_would_do() -> None:
    band = SamplesPerInsert(ratio=8.0, start_size=100, tolerance=71.0)
    with pytest.raises(ValueError, match=r"samples_per_insert_tolerance is 71; it must be >= .* = 72"):
        band.check_batch(64)
    SamplesPerInsert(8.0, 100, 72.0).check_batch(64)


@examples(60)
@given(
    ratio=st.sampled_from([0.03, 0.25, 1.0, 3.7, 8.0, 50.0]),
    batch_size=st.integers(1, 300),
    start_size=st.integers(1, 3000),
    agents=st.lists(st.integers(1, 500), min_size=1, max_size=4),
    extra=st.floats(0, 100),
    seed=st.integers(0, 1 << 30),
)
def test_agents_and_learner_never_wait_for_each_other(
    ratio: float, batch_size: int, start_size: int, agents: list[int], extra: float, seed: int
) -> None:
    """Simulate: each turn, somebody who may go on does; the band holds, and somebody always may.

    The tolerance is the least that is allowed: a batch, and the largest chunk of the agents.
    """
    tolerance = batch_size + ratio * max(agents) + extra
    band = SamplesPerInsert(ratio, start_size, tolerance)
    band.check_batch(batch_size)
    order = random.Random(seed)
    inserted = sampled = 0
    for _ in range(500):
        ready: list[int] = [steps for steps in agents if inserted + steps <= band.credit_steps(sampled)]
        if band.may_sample(inserted, sampled, batch_size):
            ready.append(0)
        assert ready, f"deadlock at {inserted} inserted, {sampled} sampled"
        choice = order.choice(ready)
        if choice:
            inserted += choice
        else:
            sampled += batch_size
        if inserted >= start_size:
            expected = ratio * (inserted - start_size)
            assert expected - tolerance - 1e-6 <= sampled <= expected + tolerance + 1e-6
        else:
            assert sampled == 0
