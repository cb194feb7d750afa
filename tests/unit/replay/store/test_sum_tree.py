"""The sum tree against a plain list, at sizes with one to four levels, and what rounding could do to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.replay.store import priorities
from surreal.replay.store.priorities import MAX_VALUE, SumTree
from tests.examples import examples


@pytest.fixture(autouse=True)
def _small_top(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a small top, few leaves make many levels.
    monkeypatch.setattr(priorities, "_TOP_SIZE", 4)


def naive_find(leaves: list[float], prefix_sum: float) -> int:
    total = 0.0
    for index, value in enumerate(leaves):
        total += value
        if prefix_sum < total:
            return index
    return max(index for index, value in enumerate(leaves) if value > 0)


# Multiples of 1/8: their sums are exact, in whichever order.
exact_values = st.integers(0, 40).map(lambda number: number / 8)


@examples(120)
@given(data=st.data(), capacity=st.one_of(st.integers(1, 100), st.sampled_from([64, 65, 1000, 1024, 1025, 5000])))
def test_a_tree_finds_what_a_list_finds(data: st.DataObject, capacity: int) -> None:
    tree, naive = SumTree(capacity), [0.0] * capacity
    for _ in range(data.draw(st.integers(1, 6))):
        size = data.draw(st.sampled_from([1, 3, 20, 400]))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
        if data.draw(st.booleans()):
            indices = rng.integers(0, capacity, size)
        else:
            begin = int(rng.integers(0, capacity))
            indices = np.arange(begin, min(begin + size, capacity))
        values = rng.integers(0, 41, len(indices)) / 8 * rng.integers(0, 2, len(indices))
        tree.set(indices, values)
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            naive[index] = value
        assert tree.leaves.tolist() == naive
        assert tree.total == sum(naive)
    if not tree.total:
        with pytest.raises(ValueError, match="all leaves are zero"):
            tree.sample(4, np.random.default_rng(0))
        return
    edges = np.cumsum(naive)
    prefix_sums = np.unique(np.concatenate([[0.0], edges, edges - 1 / 16, edges + 1 / 16]).clip(0, edges[-1]))
    indices, found = tree.find(prefix_sums)
    assert indices.tolist() == [naive_find(naive, prefix_sum) for prefix_sum in prefix_sums.tolist()]
    assert found.tolist() == [naive[index] for index in indices.tolist()]


@examples(60)
@given(
    leaves=st.lists(
        st.one_of(st.just(0.0), st.floats(0, 1e290), st.sampled_from([5e-324, 1e-300, 1e-9, 1e290])), max_size=90
    ),
    seed=st.integers(0, 2**31),
)
def test_a_zero_leaf_is_never_drawn_whatever_the_others_are(leaves: list[float], seed: int) -> None:
    leaves.append(1.0)
    tree = SumTree(len(leaves))
    tree.set(np.arange(len(leaves)), np.array(leaves))
    rng = np.random.default_rng(seed)
    total = tree.total
    edges = np.minimum(np.cumsum(leaves), total)
    beside = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), [0.0, total, -1.0, 2 * total]])
    for indices, values in (tree.sample(200, rng), tree.find(beside)):
        assert indices.min() >= 0
        assert indices.max() < len(leaves)
        assert (values > 0).all()
        np.testing.assert_array_equal(np.array(leaves)[indices], values)


def test_each_stratum_gives_one_leaf() -> None:
    tree = SumTree(100)
    tree.set(np.arange(100), np.ones(100))
    rng = np.random.default_rng(0)
    for _ in range(20):
        indices, _ = tree.sample(100, rng)
        assert indices.tolist() == list(range(100))


def test_a_million_updates_leave_the_sums_as_if_made_anew() -> None:
    tree, rng = SumTree(3000), np.random.default_rng(0)
    for _ in range(1000):
        # Values over 24 orders of magnitude, which sums corrected by differences would not survive.
        tree.set(rng.integers(0, 3000, 1000), 10.0 ** rng.uniform(-12, 12, 1000))
    tree.set(np.arange(3000), 10.0 ** rng.uniform(-12, -10, 3000))
    fresh = SumTree(3000)
    fresh.set(np.arange(3000), tree.leaves)
    assert tree.total == fresh.total
    np.testing.assert_allclose(tree.total, tree.leaves.sum(), rtol=1e-12)
    tree.set(np.arange(3000), 0.0)
    assert tree.total == 0.0


@pytest.mark.parametrize("at_once", [1, 7, 300])
def test_the_size_of_an_update_makes_no_difference(at_once: int) -> None:
    values = np.random.default_rng(0).random(1000)
    tree, whole = SumTree(1000), SumTree(1000)
    whole.set(np.arange(1000), values)
    for begin in range(0, 1000, at_once):
        indices = np.arange(begin, min(begin + at_once, 1000))
        tree.set(indices, values[indices])
    assert tree.total == whole.total
    prefix_sums = np.random.default_rng(1).random(500) * tree.total
    np.testing.assert_array_equal(tree.find(prefix_sums)[0], whole.find(prefix_sums)[0])


def test_prefixes_that_rise_where_a_leaf_is_zero_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a matrix product could do that adds up some columns in another order, much exaggerated.
    wrong = priorities._PREFIX.copy()
    wrong[:, 5] += 0.01
    monkeypatch.setattr(priorities, "_PREFIX", wrong)
    tree = SumTree(64)
    values = np.where(np.arange(64) % 16 == 4, 0.0, 1.0)
    tree.set(np.arange(64), values)
    prefix_sums = np.linspace(0, tree.total, 5000)
    indices, found = tree.find(prefix_sums)
    assert (found > 0).all()
    assert indices.tolist() == [naive_find(values.tolist(), prefix_sum) for prefix_sum in prefix_sums.tolist()]


@pytest.mark.parametrize("value", [-1e-300, float("nan"), float("inf"), 2 * MAX_VALUE])
def test_values_that_cannot_be_are_refused_and_nothing_changes(value: float) -> None:
    tree = SumTree(10)
    tree.set(np.arange(10), 1.0)
    with pytest.raises(ValueError, match="a leaf cannot be"):
        tree.set(np.array([3, 4]), np.array([2.0, value]))
    assert tree.total == 10.0
    assert tree.leaves.tolist() == [1.0] * 10


@pytest.mark.parametrize("index", [-1, 10, 15, 2**40])
def test_indices_outside_are_refused(index: int) -> None:
    tree = SumTree(10)
    with pytest.raises(ValueError, match=r"outside of 0 \.\. 9"):
        tree.set(np.array([0, index]), np.ones(2))
    assert tree.total == 0.0


def test_edges() -> None:
    with pytest.raises(ValueError, match="capacity is 0"):
        SumTree(0)
    tree = SumTree(1)
    tree.set(np.empty(0, np.int64), np.empty(0))
    tree.set(np.array([0, 0]), np.array([7.0, 3.0]))
    assert tree.total == 3.0
    assert tree.sample(3, np.random.default_rng(0))[0].tolist() == [0, 0, 0]
    assert tree.find(np.empty(0))[0].tolist() == []
    assert tree.nbytes == 8
