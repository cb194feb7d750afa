"""Rings that wrap and grow, and transitions gathered from them, against plain lists."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Contract, decode, encode
from surreal.replay.store.rows import MirroredRows, PackedRing, Ring
from surreal.replay.store.storage import Gathered, StoredChunk, TransitionStore
from tests.examples import examples

GAMMA = 0.5


@examples(150)
@given(
    kind=st.sampled_from([Ring, PackedRing]),
    size=st.integers(1, 8),
    operations=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=30),
)
def test_a_ring_holds_what_was_appended_and_not_freed(
    kind: type[Ring], size: int, operations: list[tuple[bool, int]]
) -> None:
    ring = kind({"scalar": ((), np.int64), "pair": ((2,), np.float32)}, size)
    naive: list[int] = []  # by sequence number, for ever
    tail = 0
    for is_append, number in operations:
        if is_append:
            values = np.arange(len(naive), len(naive) + number) * 7
            rows = {"scalar": values, "pair": np.stack([values, -values], axis=1).astype(np.float32)}
            assert ring.append(rows, number) == len(naive)
            naive += values.tolist()
        else:
            tail = min(tail + number, len(naive))
            ring.free_until(tail)
        assert (ring.tail, ring.head, len(ring)) == (tail, len(naive), len(naive) - tail)
        live = np.arange(tail, len(naive))
        assert ring.take("scalar", live).tolist() == naive[tail:]
        assert ring.take("pair", live)[:, 1].tolist() == [-value for value in naive[tail:]]


def test_a_ring_grows_only_when_what_is_alive_does_not_fit() -> None:
    ring = Ring({"x": ((), np.int64)}, 10)
    for begin in range(0, 100, 5):
        ring.append({"x": np.arange(begin, begin + 5)}, 5)
        ring.free_until(begin)
    assert ring.size == 10
    ring.append({"x": np.arange(6)}, 6)
    assert ring.size > 10
    assert ring.nbytes == 8 * ring.size


def test_a_packed_ring_aligns_its_columns_and_counts_the_gaps() -> None:
    ring = PackedRing({"flag": ((), np.bool_), "number": ((), np.int64), "pair": ((2,), np.float32)}, 5)
    assert ring.nbytes == 5 * 24
    ring.append({"flag": [True, False], "number": [1, 2], "pair": [[3, 4], [5, 6]]}, 2)  # type: ignore[dict-item]
    found = ring.take_records(np.array([[1, 0], [0, 1]]))
    assert found["number"].tolist() == [[2, 1], [1, 2]]
    assert found["pair"].tolist() == [[[5, 6], [3, 4]], [[3, 4], [5, 6]]]
    assert all(found[name].flags.aligned for name in ring.columns)


CONTRACT = Contract(
    ObsSpec.from_obs({"name": np.int64(0), "image": np.zeros((2, 2), np.uint8)}),
    ArraySpec("action", (), np.dtype(np.int64)),
    (ArraySpec("value", (2,), np.dtype(np.float32)), ArraySpec("next_action_mask", (8,), np.dtype(np.bool_))),
    lookahead=2,
)


def legal(names: Any) -> np.ndarray[Any, Any]:
    """A mask that says which observation it is of."""
    bits: np.ndarray[Any, Any] = (np.asarray(names)[:, None] >> np.arange(8)) % 2 == 1
    return bits


class NaiveStore:
    """One dict a transition."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.transitions: list[dict[str, Any]] = []

    def insert(self, segments: list[tuple[list[int], int, bool]]) -> None:
        for names, own, terminated in segments:
            for first in range(own):
                last = min(first + self.n, len(names) - 1)
                ends = last == len(names) - 1
                self.transitions.append(
                    {
                        "obs": names[first],
                        "next": names[last],
                        "reward": sum(GAMMA**k * (names[first + k] + 0.5) for k in range(last - first)),
                        "discount": 0.0 if ends and terminated else GAMMA ** (last - first),
                    }
                )


def make_chunk(segments: list[tuple[list[int], int, bool]]) -> Any:
    """Segments of (names of the observations, own steps, terminated); actions and rewards follow from the names."""
    names = np.array([name for segment, _, _ in segments for name in segment])
    acted = np.array([name for segment, _, _ in segments for name in segment[:-1]])
    flags = [int(ends and i == len(segment) - 2) for segment, _, ends in segments for i in range(len(segment) - 1)]
    head = np.array([[len(segment), own, slot, 0, 0] for slot, (segment, own, _) in enumerate(segments)], np.int32)
    columns = {
        "action": acted + 1000,
        "reward": (acted + 0.5).astype(np.float32),
        "flags": np.array(flags, np.uint8),
        "version": (acted + 2000).astype(np.int32),
        "extra.value": np.stack([acted, -acted], axis=1).astype(np.float32),
        "extra.next_action_mask": legal(acted + 1),  # names count on
    }
    image = np.repeat(names % 251, 4).reshape(-1, 2, 2).astype(np.uint8)
    leaves = CONTRACT.obs.flatten({"name": names, "image": image})
    encoded = encode(CONTRACT, head, columns, leaves)
    return decode(CONTRACT, encoded.head, encoded.table, encoded.block)


@examples(80)
@given(data=st.data(), n=st.integers(1, 3), capacity=st.sampled_from([1, 16]))
def test_gathered_transitions_are_those_of_plain_lists(data: st.DataObject, n: int, capacity: int) -> None:
    store, naive = TransitionStore(CONTRACT, capacity=capacity, n_step=n, gamma=GAMMA), NaiveStore(n)
    store.rows = MirroredRows(CONTRACT, capacity)
    store.transitions = PackedRing(
        {name: (column.shape[1:], column.dtype) for name, column in store.transitions.columns.items()}, capacity
    )
    chunks: deque[StoredChunk] = deque()
    name = 0
    for _ in range(data.draw(st.integers(1, 8))):
        segments = []
        for _ in range(data.draw(st.integers(1, 3))):
            steps = data.draw(st.integers(1, 7))
            is_open = steps > 2 and data.draw(st.booleans())
            terminated = data.draw(st.booleans()) and not is_open
            segments.append((list(range(name, name + steps + 1)), steps - 2 * is_open, terminated))
            name += steps + 1
        numbers = store.insert(make_chunk(segments))
        naive.insert(segments)
        assert numbers == range(len(naive.transitions) - len(numbers), len(naive.transitions))
        chunks.append(StoredChunk(b"", "", "", len(numbers), 0, numbers.stop, store.observations.head))
        while len(chunks) > 1 and data.draw(st.booleans()):
            store.evict(chunks.popleft())
        alive = np.arange(store.transitions.tail, store.transitions.head)
        assert len(store) == len(alive) == sum(chunk.steps for chunk in chunks)
        compare(store, naive, alive)
    shuffled = np.random.default_rng(0).choice(alive, 20) if len(alive) else alive
    compare(store, naive, shuffled)


def compare(store: TransitionStore, naive: NaiveStore, indices: np.ndarray[Any, Any]) -> None:
    rows = store.gather(indices, np.full(len(indices), 0.25))
    expected = [naive.transitions[i] for i in indices.tolist()]
    obs, next_obs = (np.array([e[key] for e in expected], np.int64) for key in ("obs", "next"))
    for leaves, names in ((rows.obs, obs), (rows.next_obs, next_obs)):
        image, name = leaves
        np.testing.assert_array_equal(name, names)
        np.testing.assert_array_equal(image, np.repeat(names % 251, 4).reshape(-1, 2, 2))
    np.testing.assert_array_equal(rows.action, obs + 1000)
    np.testing.assert_array_equal(rows.version, obs + 2000)
    np.testing.assert_array_equal(rows.extras["value"][:, 1], -obs)
    np.testing.assert_array_equal(rows.extras["next_action_mask"], legal(next_obs))
    np.testing.assert_allclose(rows.reward, [e["reward"] for e in expected], rtol=1e-6)
    np.testing.assert_allclose(rows.discount, [e["discount"] for e in expected])
    np.testing.assert_array_equal(rows.sample_info.generation, indices)
    np.testing.assert_array_equal(rows.sample_info.age_steps, len(naive.transitions) - 1 - indices)
    np.testing.assert_array_equal(rows.sample_info.probability, np.full(len(indices), 0.25))
    assert all(column.flags.c_contiguous for column in (*rows.obs, *rows.next_obs, rows.action, rows.reward))
    if not len(indices):
        return
    several = np.stack([indices, indices[::-1]])
    request = store.request(several, np.full(several.shape, 0.25))
    gathered = store.collect(request)
    assert request.batches == 2 and gathered is not None
    for batch, numbers in zip(gathered.split(), several, strict=True):
        assert_same(batch, store.gather(numbers, np.full(len(numbers), 0.25)))


def assert_same(batch: Gathered, other: Gathered) -> None:
    mine, theirs = (
        [
            *each.obs,
            *each.next_obs,
            *each[2:6],
            *each.extras.values(),
            *each.sample_info[:3],
            each.sample_info.age_steps,
        ]
        for each in (batch, other)
    )
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
