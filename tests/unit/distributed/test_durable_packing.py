"""Rows of a DurableReplay as bytes, and its copy in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.base.errors import CodecError
from surreal.distributed.durable.packing import Mirror, join, make_columns, pack, unpack


def assert_equal(found: Any, wanted: Any) -> None:
    assert [*found] == [*wanted]
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype
        for one, other in zip(found[name], wanted[name], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_columns_of_all_kinds_come_back_bit_by_bit() -> None:
    columns = make_columns(
        {
            "image": np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4),
            "reward": [0.5, float("nan")],
            "done": np.array([True, False]),
            "tokens": [np.arange(3), np.arange(0)],
            "embeddings": [np.ones((2, 4), np.float32), np.zeros((5, 4), np.float32)],
        }
    )
    assert_equal(unpack(pack(columns)), columns)


def test_sequences_of_one_length_stay_sequences() -> None:
    columns = make_columns({"tokens": [[1, 2], [3, 4]]})
    assert columns["tokens"].dtype == object
    joined = join([unpack(pack(columns)), make_columns({"tokens": [[5]]})])
    assert [part.tolist() for part in joined["tokens"]] == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({}, "columns of one length"),
        ({"a": []}, "no rows"),
        ({"a": [1], "b": [1, 2]}, "columns of one length"),
        ({"a": 3.0}, "one number"),
        ({"a": [np.ones((1, 2)), np.ones((1, 3))]}, "only in length"),
        ({"a": [np.ones(2, np.float32), np.ones(2)]}, "only in length"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_columns(rows)


@pytest.mark.parametrize("value", [["text"], [None], np.array([object()])])
def test_rows_are_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="a has dtype"):
        make_columns({"a": value})


def test_damaged_bytes_are_found_wherever_they_are() -> None:
    data = pack(make_columns({"a": np.arange(10), "b": [[1], [2, 3]] * 5}))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(CodecError, match="damaged"):
            unpack(bytes(damaged))
    for length in (0, 7, len(data) - 1):
        with pytest.raises(CodecError, match="damaged"):
            unpack(data[:length])


def test_different_columns_do_not_join() -> None:
    one = make_columns({"a": np.arange(2)})
    for other in ({"b": np.arange(2)}, {"a": np.arange(2.0)}, {"a": np.ones((2, 2), int)}, {"a": [[1], [2]]}):
        with pytest.raises(ValueError, match="different columns"):
            join([one, make_columns(other)])


def test_the_copy_holds_exactly_the_rows_that_were_not_forgotten() -> None:
    rng, mirror, alive = np.random.default_rng(0), Mirror(), []
    first = 0
    for entry in range(1, 200):
        rows = int(rng.integers(1, 40))
        values = np.arange(first, first + rows)
        first += rows
        mirror.append(b"%d-0" % entry, {"x": values, "s": make_columns({"s": [[v] * 2 for v in values]})["s"]}, entry)
        alive.append((entry, values))
        if rng.random() < 0.4:
            alive = alive[int(rng.integers(0, len(alive))) :]
            mirror.forget_before(b"%d-0" % alive[0][0])
        wanted = np.concatenate([values for _, values in alive])
        assert len(mirror) == len(wanted)
        drawn = mirror.sample(50, rng, 0)
        assert drawn is not None and set(drawn["x"]) <= set(wanted)
        assert all(part.tolist() == [x, x] for x, part in zip(drawn["x"], drawn["s"], strict=True))
    fresh = mirror.sample(500, rng, 199)
    assert fresh is not None and set(fresh["x"]) == set(alive[-1][1])
    assert mirror.sample(1, rng, 200) is None
    mirror.forget_before(None)
    assert len(mirror) == 0 and mirror.sample(1, rng, 0) is None
