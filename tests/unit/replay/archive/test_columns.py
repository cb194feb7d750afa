"""Chunks as rows, and back: exactly, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Chunk, decode, encode
from surreal.distributed.experience.data_contract import Contract
from surreal.replay.archive.columns import archive_schema, chunks_of, rows_of, to_record_batch

SEGMENTS_OF_CHUNK = "rows 100 to 105, of chunk 0, do not form segments"
LEAVES = (
    ArraySpec("b", (2, 2), np.dtype(np.uint8)),
    ArraySpec("empty", (0,), np.dtype(np.float32)),
    ArraySpec("flag", (), np.dtype(np.bool_)),
    ArraySpec("half", (3,), np.dtype(np.float16)),
)
OBS = ObsSpec(LEAVES, {"dict": {leaf.name: None for leaf in LEAVES}})
CONTRACT = Contract(
    OBS,
    ArraySpec("action", (2,), np.dtype(np.float32)),
    (ArraySpec("mask", (3,), np.dtype(np.bool_)), ArraySpec("value", (), np.dtype(np.float64))),
    lookahead=2,
    stack=3,
)

#: (own, lookahead, slot, first step, history) of a segment.
SEGMENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3), st.integers(0, 9), st.integers(0, 2)).filter(
        lambda segment: segment[0] + segment[1] > 0
    ),
    min_size=1,
    max_size=5,
)


def make_chunk(parts: list[tuple[int, int, int, int, int]], seed: int = 0) -> Chunk:
    rng = np.random.default_rng(seed)
    segments = np.array([[h + own + more + 1, own, slot, first, h] for own, more, slot, first, h in parts], np.int32)
    rows, steps = int(segments[:, 0].sum()), int((segments[:, 0] - 1 - segments[:, 4]).sum())

    def random(count: int, spec: ArraySpec) -> Any:
        return (rng.normal(size=(count, *spec.shape)) * 50).astype(np.int16 if spec.dtype.kind == "u" else spec.dtype)

    columns = {name: random(steps, spec).astype(spec.dtype) for name, spec in CONTRACT.table_columns}
    columns["flags"] = rng.integers(0, 4, steps).astype(np.uint8)
    columns["version"] = rng.integers(-1, 1 << 30, steps).astype(np.int32)
    leaves = [random(rows, leaf).astype(leaf.dtype) for leaf in OBS.leaves]
    encoded = encode(CONTRACT, segments, columns, leaves)
    return decode(CONTRACT, encoded.head, encoded.table, encoded.block)


def to_batch(*chunks: Chunk) -> pa.RecordBatch:
    parts = [rows_of(CONTRACT, chunk, number=i, sender=0, sequence=i + 3) for i, chunk in enumerate(chunks)]
    return to_record_batch(CONTRACT, archive_schema(CONTRACT), parts)


def assert_same(chunk: Any, expected: Chunk) -> None:
    encoded = encode(CONTRACT, chunk.segments, chunk.columns, chunk.leaves)
    got = decode(CONTRACT, encoded.head, encoded.table, encoded.block)
    np.testing.assert_array_equal(got.segments, expected.segments)
    for name in expected.columns:
        np.testing.assert_array_equal(got.columns[name], expected.columns[name])
    for name in expected.extras:
        np.testing.assert_array_equal(got.extras[name], expected.extras[name])
    for leaf, other in zip(got.leaves, expected.leaves, strict=True):
        assert leaf.dtype == other.dtype
        np.testing.assert_array_equal(leaf, other)


@given(st.lists(SEGMENTS, min_size=1, max_size=3))
def test_chunks_come_back_from_their_rows(parts: list[Any]) -> None:
    chunks = [make_chunk(segments, seed) for seed, segments in enumerate(parts)]
    found = list(chunks_of(CONTRACT, to_batch(*chunks)))
    assert [(chunk.number, chunk.sequence) for chunk in found] == [(i, i + 3) for i in range(len(chunks))]
    for chunk, expected in zip(found, chunks, strict=True):
        assert_same(chunk, expected)


def test_kinds_say_what_a_row_is() -> None:
    rows = to_batch(make_chunk([(2, 1, 5, 7, 2)])).to_pydict()
    assert rows["kind"] == ["history", "history", "step", "step", "lookahead", "end"]
    assert rows["step"] == [5, 6, 7, 8, 9, 10]
    assert rows["slot"] == [5] * 6
    assert rows["action"][0] == rows["action"][-1] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("kind", 1, "end", SEGMENTS_OF_CHUNK),
        ("kind", 5, "step", SEGMENTS_OF_CHUNK),
        ("kind", 0, "other", "row 100: kind is 'other'; it must be history, step"),
        ("kind", 4, "history", SEGMENTS_OF_CHUNK),
        ("step", 2, 99, SEGMENTS_OF_CHUNK),
        ("step", 0, -5, SEGMENTS_OF_CHUNK),
        ("slot", 3, 1, SEGMENTS_OF_CHUNK),
        ("segment", 3, 4, SEGMENTS_OF_CHUNK),
        ("sequence", 2, 9, SEGMENTS_OF_CHUNK),
        ("sender", 5, 2, SEGMENTS_OF_CHUNK),
        ("chunk", 1, 8, "rows 100 to 100, of chunk 0, do not form segments"),
        ("obs.flag", 0, 7, "column flag must be 0 or 1, and in row 100, it is not"),
        ("extra.mask", 3, [2, 0, 0], "column mask must be 0 or 1, and in row 103, it is not"),
        ("reward", 2, float("nan"), "row 102 cannot be learned from: reward is nan; numbers must be finite"),
        ("action", 3, [0.0, 1e30], "row 103 cannot be learned from: action is 1e.30"),
        ("obs.half", 5, [0.0, float("inf"), 0.0], "row 105 cannot be learned from: obs.half is inf"),
        ("extra.value", 4, float("-inf"), "row 104 cannot be learned from: extra.value is -inf"),
        ("version", 2, -2, "row 102: version is -2; it must be -1 .. "),
    ],
)
def test_rows_that_do_not_fit_are_named(column: str, row: int, value: Any, message: str) -> None:
    batch = to_batch(make_chunk([(2, 1, 0, 7, 2)]))
    rows = batch.to_pydict()
    rows[column][row] = value
    with pytest.raises(CodecError, match=message):
        list(chunks_of(CONTRACT, pa.RecordBatch.from_pydict(rows, schema=batch.schema), 100))


def test_a_missing_value_is_named() -> None:
    batch = to_batch(make_chunk([(2, 1, 0, 7, 2)]))
    rewards = pa.array([0.0, 0.0, 0.0, None, 0.0, 0.0], batch.schema.field("reward").type)
    columns = [rewards if name == "reward" else batch.column(name) for name in batch.schema.names]
    schema = pa.schema([field.with_nullable(True) for field in batch.schema])  # a schema without nulls allows none
    with pytest.raises(CodecError, match="row 3: reward is missing"):
        list(chunks_of(CONTRACT, pa.RecordBatch.from_arrays(columns, schema=schema)))


def test_more_history_than_a_stack_has_is_refused() -> None:
    batch = to_batch(make_chunk([(2, 1, 0, 7, 2)]))
    single = Contract(CONTRACT.obs, CONTRACT.action, CONTRACT.extras)
    with pytest.raises(CodecError, match="do not form segments"):
        list(chunks_of(single, batch))
