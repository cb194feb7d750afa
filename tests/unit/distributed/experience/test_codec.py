"""Chunks survive the wire; anything else than a chunk is a `CodecError`, and costs no memory."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from surreal.base.errors import BadValueError, CodecError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Chunk, Contract, EncodedChunk, decode, encode, read_head
from tests.examples import examples

DTYPES = ["|b1", "|u1", "|i1", "<i4", "<i8", "<f2", "<f4", "<f8"]
HEAD_BYTES = 40

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
array_specs = st.builds(lambda shape, dtype: ArraySpec("x", shape, np.dtype(dtype)), shapes, st.sampled_from(DTYPES))


def obs_specs(leaf: st.SearchStrategy[ArraySpec]) -> st.SearchStrategy[ObsSpec]:
    zeros = leaf.map(lambda spec: np.zeros(spec.shape, spec.dtype))
    nested = st.dictionaries(st.text(max_size=4), zeros | st.tuples(zeros, zeros), min_size=1, max_size=3)
    return (zeros | nested).map(ObsSpec.from_obs)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    names = draw(st.lists(st.text(max_size=5), max_size=2, unique=True))
    extras = tuple(ArraySpec(name, *_shape_and_dtype(draw(array_specs))) for name in names)
    action = ArraySpec("action", *_shape_and_dtype(draw(array_specs)))
    return Contract(draw(obs_specs(array_specs)), action, extras, draw(st.integers(0, 4)))


def _shape_and_dtype(spec: ArraySpec) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return spec.shape, spec.dtype


def make_parts(
    contract: Contract, sizes: list[int], seed: int = 0
) -> tuple[NDArray[np.int32], dict[str, NDArray[Any]], list[NDArray[Any]]]:
    """Random segments of these numbers of steps, with their columns and observation rows."""
    rng = np.random.default_rng(seed)
    rows = np.array(sizes) + 1
    own = rng.integers(0, rows)
    slots, first = rng.integers(0, 50, len(rows)), rng.integers(0, 9999, len(rows))
    segments = np.stack([rows, own, slots, first, np.zeros_like(rows)], axis=1)

    def values(spec: ArraySpec, count: int) -> NDArray[Any]:
        raw = rng.integers(0, 2 if spec.dtype == np.bool_ else 100, (count, *spec.shape))
        return raw.astype(spec.dtype)

    columns = {name: values(spec, sum(sizes)) for name, spec in contract.table_columns}
    columns["flags"] %= 4
    return segments.astype(np.int32), columns, [values(leaf, int(rows.sum())) for leaf in contract.obs.leaves]


def make_chunk(contract: Contract, sizes: list[int]) -> EncodedChunk:
    return encode(contract, *make_parts(contract, sizes))


def decode_chunk(contract: Contract, chunk: EncodedChunk) -> Chunk:
    return decode(contract, chunk.head, chunk.table, chunk.block)


SMALL = Contract(
    ObsSpec.from_obs({"a": np.zeros(2, np.float32), "b": np.zeros((), np.uint8)}),
    ArraySpec("action", (2,), np.dtype(np.float32)),
    (ArraySpec("value", (), np.dtype(np.float32)), ArraySpec("mask", (3,), np.dtype(np.bool_))),
    lookahead=1,
)
#: Of its two states, only every third step of an episode has values.
SPARSE = replace(
    SMALL,
    extras=tuple(ArraySpec(name, (2,), np.dtype(np.float32)) for name in ("state", "state.c", "states")),
    state_interval=3,
)


@examples(80)
@given(contract=contracts(), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_a_chunk_survives_the_wire(contract: Contract, sizes: list[int], seed: int) -> None:
    segments, columns, leaves = make_parts(contract, sizes, seed)
    encoded = encode(contract, segments, columns, leaves)
    reader = Contract.from_bytes(contract.as_bytes)
    assert (reader, reader.id) == (contract, contract.id)
    chunk = decode(reader, encoded.head, encoded.table, encoded.block)
    np.testing.assert_array_equal(chunk.segments, segments)
    for name, spec in contract.table_columns:
        got = chunk.extras[name[6:]] if name.startswith("extra.") else chunk.columns[name]
        assert got.dtype == spec.dtype
        np.testing.assert_array_equal(got, columns[name])
    for got, leaf in zip(chunk.leaves, leaves, strict=True):
        assert got.dtype == leaf.dtype
        np.testing.assert_array_equal(got, leaf)
    assert chunk.own_steps == encoded.own_steps == segments[:, 1].sum()
    assert chunk.stored_bytes == encoded.stored_bytes
    assert chunk.num_rows == sum(sizes) + len(sizes)


@examples(50)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_only_some_steps_have_a_state(sizes: list[int], seed: int) -> None:
    segments, columns, leaves = make_parts(SPARSE, sizes, seed)
    encoded = encode(SPARSE, segments, columns, leaves)
    chunk = decode_chunk(Contract.from_bytes(SPARSE.as_bytes), encoded)
    first, steps = segments[:, 3].tolist(), (segments[:, 0] - 1).tolist()
    number = np.concatenate([np.arange(begin, begin + count) for begin, count in zip(first, steps, strict=True)])
    for name in ("state", "state.c"):
        whole = columns[f"extra.{name}"]
        np.testing.assert_array_equal(chunk.extras[name], np.where(number[:, None] % 3 == 0, whole, 0.0))
        assert chunk.extras[name].dtype == np.float32
    np.testing.assert_array_equal(chunk.extras["states"], columns["extra.states"])


def test_states_that_are_not_sent_take_no_bytes() -> None:
    wide = replace(SMALL, extras=(ArraySpec("state", (2, 512), np.dtype(np.float32)),), state_interval=40)
    dense = replace(wide, state_interval=1)
    sizes, saved = [make_chunk(each, [80]).content_bytes for each in (wide, dense)], 78 * 4096
    assert sizes[1] - sizes[0] > 0.99 * saved
    assert 80 * wide.row_bytes + wide.table_head_bytes >= sizes[0], "senders fill chunks by this estimate"


def test_states_of_other_steps_than_agreed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = make_chunk(SPARSE, [7])
    wrong = np.arange(7) < 3
    with monkeypatch.context() as patched:
        patched.setattr(Contract, "with_state", lambda self, segments: wrong)
        encoded = make_chunk(SPARSE, [7])
    decode_chunk(SPARSE, honest)
    with pytest.raises(CodecError, match="column state has rows in other steps"):
        decode_chunk(SPARSE, encoded)


@examples(50)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_step_columns_follow_from_the_segments(sizes: list[int], seed: int) -> None:
    segments, columns, leaves = make_parts(SMALL, sizes, seed)
    chunk = decode_chunk(SMALL, encode(SMALL, segments, columns, leaves))
    position, row = 0, 0
    own: list[int] = []
    for rows, own_steps, slot, first_step, _ in segments.tolist():
        for within in range(rows - 1):
            i = position + within
            assert (chunk.within[i], chunk.obs_row[i], chunk.env_slot[i]) == (within, row + within, slot)
            assert chunk.step[i] == first_step + within
            assert chunk.terminated[i] == (columns["flags"][i] in (1, 3))
            assert chunk.truncated[i] == (columns["flags"][i] in (2, 3))
            if within < own_steps:
                own.append(i)
        position, row = position + rows - 1, row + rows
    assert chunk.own.tolist() == own


def test_the_reader_copies_nothing_of_the_observations() -> None:
    encoded = make_chunk(SMALL, [3])
    block = encoded.block
    chunk = decode(SMALL, encoded.head, encoded.table, block)
    address = np.frombuffer(block, np.uint8).ctypes.data
    assert chunk.leaves[0].ctypes.data == address


def test_columns_of_a_wrong_dtype_or_shape_are_not_encoded() -> None:
    segments, columns, leaves = make_parts(SMALL, [3])
    for wrong in ({"reward": columns["reward"].astype(np.float64)}, {"action": columns["action"][:, :1]}):
        with pytest.raises(ValueError, match="column"):
            encode(SMALL, segments, columns | wrong, leaves)


# -- hostile bytes ---------------------------------------------------------------------------------------------------


def parts(chunk: EncodedChunk) -> list[bytes]:
    return [chunk.head, chunk.table, chunk.block]


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("how", ["shorter", "longer"])
def test_a_part_of_any_other_length_is_refused(part: int, how: str) -> None:
    whole = parts(make_chunk(SMALL, [3, 2]))
    text = whole[part]
    shorter = [text[:length] for length in range(len(text))]
    for bad in shorter if how == "shorter" else [text + b"\0" * extra for extra in (1, 8, 64)]:
        with pytest.raises(CodecError):
            decode(SMALL, *[bad if i == part else good for i, good in enumerate(whole)])


def assert_refused_or_equal_shaped(contract: Contract, head: bytes, table: bytes, block: bytes, like: Chunk) -> None:
    try:
        chunk = decode(contract, head, table, block)
    except CodecError:
        return
    assert chunk.num_rows == like.num_rows
    for got, expected in [
        *zip(chunk.leaves, like.leaves, strict=True),
        *((chunk.columns[name], like.columns[name]) for name in like.columns),
        *((chunk.extras[name], like.extras[name]) for name in like.extras),
    ]:
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert len(chunk.own) == chunk.own_steps
    assert chunk.obs_row.min() >= 0
    assert chunk.obs_row.max() <= chunk.num_rows - 2
    assert (np.diff(chunk.obs_row) > 0).all()
    assert chunk.step.min() >= 0 and chunk.env_slot.min() >= 0
    for column in [*chunk.columns.values(), *chunk.extras.values()]:
        column.tobytes()  # every byte can be read


@pytest.mark.parametrize("contract", [SMALL, SPARSE], ids=["whole", "sparse"])
def test_any_single_flipped_bit_is_refused_or_harmless(contract: Contract) -> None:
    chunk = make_chunk(contract, [3, 2])
    whole, like = parts(chunk), decode_chunk(contract, chunk)
    for part in (0, 1):
        for position in range(len(whole[part])):
            for bit in range(8):
                bad = bytearray(whole[part])
                bad[position] ^= 1 << bit
                changed = [bytes(bad) if i == part else good for i, good in enumerate(whole)]
                assert_refused_or_equal_shaped(contract, *changed, like=like)


@examples(100)
@given(data=st.data())
def test_many_changed_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    chunk = make_chunk(SMALL, [4, 1])
    whole, like = [bytearray(part) for part in parts(chunk)], decode_chunk(SMALL, chunk)
    for _ in range(data.draw(st.integers(1, 6))):
        part = whole[data.draw(st.integers(0, 2))]
        begin = data.draw(st.integers(0, len(part) - 1))
        values = [b"\xff" * 4, b"\0" * 8, b"\x7f\xff\xff\xff", b"\x01", b"\xff\xff\xff\x7f" * 2]
        value = data.draw(st.sampled_from(values))
        part[begin : begin + len(value)] = value[: len(part) - begin]
    assert_refused_or_equal_shaped(SMALL, *map(bytes, whole), like=like)


@examples(100)
@given(head=st.binary(max_size=80), table=st.binary(max_size=200), block=st.binary(max_size=50))
def test_noise_is_refused(head: bytes, table: bytes, block: bytes) -> None:
    chunk = make_chunk(SMALL, [2])
    for changed in ([head, chunk.table, chunk.block], [chunk.head, table, chunk.block], [head, table, block]):
        with pytest.raises(CodecError):
            decode(SMALL, *changed)


def test_declared_sizes_cost_no_memory() -> None:
    """Counts of billions in the head, and in every 4 or 8 bytes of the table's metadata."""
    chunk = make_chunk(SMALL, [3, 2])
    whole = parts(chunk)
    decode(SMALL, *whole)  # what pyarrow imports at first use is not counted
    huge = [b"\xff\xff\xff\x7f", b"\0\0\0\x40\0\0\0\0", b"\0\0\0\0\x01\0\0\0", b"\xff" * 8]
    arrow_before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        for part in (0, 1):
            for position in range(0, len(whole[part]) - 8, 4):
                for value in huge:
                    bad = bytearray(whole[part])
                    bad[position : position + len(value)] = value
                    with contextlib.suppress(CodecError):
                        decode(SMALL, *[bytes(bad) if i == part else good for i, good in enumerate(whole)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert pa.default_memory_pool().max_memory() <= arrow_before + (1 << 20)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_tables_are_refused_before_they_are_unpacked(codec: str) -> None:
    sizes = [5000]
    segments, columns, leaves = make_parts(SMALL, sizes)
    encoded = encode(SMALL, segments, columns, leaves)
    message = pa.ipc.read_message(encoded.table)
    batch = pa.ipc.read_record_batch(message, SMALL.table_schema)
    options = pa.ipc.IpcWriteOptions(compression=codec)
    table = batch.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SMALL.table_schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()  # the schema
    compressed = reader.read_next_message().serialize().to_pybytes()
    assert len(compressed) < len(table)
    with pytest.raises(CodecError, match="compressed"):
        decode(SMALL, _with_table_bytes(encoded.head, len(encoded.table), len(compressed)), compressed, encoded.block)


def _with_table_bytes(head: bytes, before: int, after: int) -> bytes:
    """The head with another length of the table."""
    for offset in range(0, HEAD_BYTES - 4, 2):
        if head[offset : offset + 4] == before.to_bytes(4, "little"):
            return head[:offset] + after.to_bytes(4, "little") + head[offset + 4 :]
    raise AssertionError("the length is not in the head")


def test_an_arrow_message_of_another_kind_is_refused() -> None:
    encoded = make_chunk(SMALL, [3])
    schema = SMALL.table_schema.serialize().to_pybytes()
    with pytest.raises(CodecError, match="schema"):
        decode(SMALL, _with_table_bytes(encoded.head, len(encoded.table), len(schema)), schema, encoded.block)


def test_a_table_with_nulls_is_refused() -> None:
    encoded = make_chunk(SMALL, [3])
    arrays = []
    for column in pa.ipc.read_record_batch(pa.ipc.read_message(encoded.table), SMALL.table_schema).columns:
        arrays.append(pa.array([None, *column.to_pylist()[1:]], column.type))
    fields = [pa.field(field.name, field.type) for field in SMALL.table_schema]
    table = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)).serialize().to_pybytes()
    with pytest.raises(CodecError):
        decode(SMALL, _with_table_bytes(encoded.head, len(encoded.table), len(table)), table, encoded.block)


def test_unknown_flags_are_refused() -> None:
    segments, columns, leaves = make_parts(SMALL, [3])
    columns["flags"][1] = 4
    with pytest.raises(CodecError, match="flags"):
        decode_chunk(SMALL, encode(SMALL, segments, columns, leaves))


@pytest.mark.parametrize(
    ("sizes", "segments"),
    [
        ([3], [[4, 4, 0, 0, 0]]),  # more own steps than steps
        ([1, 1], [[2, -1, 0, 0, 0], [2, 1, 0, 0, 0]]),
        ([3], [[4, 3, -1, 0, 0]]),
        ([3], [[4, 3, 0, -1, 0]]),
        ([3], [[3, 2, 0, 0, 0], [1, 0, 0, 0, 0]]),  # a segment without a step
        ([3], [[5, 3, 0, 0, 0]]),
        ([3], [[2, 1, 0, 0, 0]]),
        ([3, 3], [[4, 3, 0, 0, 0]]),
        ([3], [[4, 3, 0, 0, 1]]),  # a history without frame stacks
        ([3], [[5, 3, 0, 0, -1]]),
        ([3], [[2**31 - 1, 3, 0, 0, 0], [2**31 - 1, 0, 0, 0, 0], [6, 0, 0, 0, 0]]),  # a sum of 4 in 32 bits
    ],
)
def test_segments_that_do_not_add_up_are_refused(sizes: list[int], segments: list[list[int]]) -> None:
    _, columns, leaves = make_parts(SMALL, sizes)
    with pytest.raises(CodecError, match="segment"):
        decode_chunk(SMALL, encode(SMALL, np.array(segments, np.int32), columns, leaves))


def test_a_chunk_of_another_contract_is_refused() -> None:
    encoded = make_chunk(SMALL, [3])
    other = Contract(SMALL.obs, SMALL.action, SMALL.extras, lookahead=2)
    assert read_head(encoded.head).contract_id == SMALL.id != other.id
    with pytest.raises(CodecError, match="contract"):
        decode_chunk(other, encoded)


def test_a_chunk_of_another_program_or_version_is_refused() -> None:
    encoded = make_chunk(SMALL, [3])
    with pytest.raises(CodecError, match="starts with"):
        read_head(b"XXXX" + encoded.head[4:])
    with pytest.raises(CodecError, match="format 2"):
        read_head(encoded.head[:4] + b"\2" + encoded.head[5:])


# -- contracts -------------------------------------------------------------------------------------------------------


def test_the_contract_has_one_text_and_one_number() -> None:
    assert json.loads(SMALL.as_bytes) == SMALL.to_json()
    again = Contract.from_bytes(json.dumps(SMALL.to_json(), indent=1).encode())
    assert (again, again.as_bytes, again.id) == (SMALL, SMALL.as_bytes, SMALL.id)


def hostile_contracts() -> list[Any]:
    good = SMALL.to_json()
    deep: Any = None
    for _ in range(5000):
        deep = {"tuple": [deep]}
    leaf = good["obs"]["leaves"][0]
    return [
        [], 7, None, "text", {}, good | {"format": 99}, good | {"obs": None}, good | {"extras": [1]},
        good | {"state_interval": 0}, good | {"state_interval": "3"},
        good | {"extras": {"a": 1}}, good | {"lookahead": -1}, good | {"lookahead": 1.5}, good | {"lookahead": "x"},
        good | {"action": good["action"] | {"dtype": "O"}}, good | {"action": good["action"] | {"shape": [1 << 62, 4]}},
        good | {"obs": {"leaves": [leaf], "structure": {"dict": [1]}}},
        good | {"obs": {"leaves": [], "structure": {"tuple": []}}},
        good | {"obs": {"leaves": [leaf | {"shape": [1 << 32, 1 << 32]}], "structure": None}},
        good | {"obs": {"leaves": [leaf], "structure": deep}},
    ]  # fmt: skip


@pytest.mark.parametrize("index", range(20))
def test_a_hostile_contract_is_refused(index: int) -> None:
    data = hostile_contracts()[index]
    try:
        text = json.dumps(data).encode()
    except RecursionError:
        text = json.dumps(SMALL.to_json() | {"obs": "DEEP"}).replace('"DEEP"', "[" * 100_000).encode()
    with pytest.raises(CodecError):
        Contract.from_bytes(text)


@examples(100)
@given(st.binary(max_size=100))
def test_noise_is_no_contract(text: bytes) -> None:
    with pytest.raises(CodecError):
        Contract.from_bytes(text)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -3e38])
@pytest.mark.parametrize("where", ["observation a", "action", "reward", "extra.value"])
def test_impossible_numbers_are_neither_sent_nor_read(where: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = (ArraySpec("value", (), np.dtype(np.float32)),)
    contract = Contract(SMALL.obs, SMALL.action, extras, 0)
    segments, columns, leaves = make_parts(contract, [3, 2])
    (leaves[0] if where == "observation a" else columns[where])[1] = bad
    with pytest.raises(BadValueError, match=f"{where} is {bad:g}".replace("+", r"\+")):
        encode(contract, segments, columns, leaves)
    with monkeypatch.context() as foreign:  # a sender that does not look
        foreign.setattr("surreal.distributed.experience.codec.describe_unsound", lambda arrays: "")
        chunk = encode(contract, segments, columns, leaves)
    with pytest.raises(CodecError, match=f"impossible number: {where} is"):
        decode_chunk(contract, chunk)
