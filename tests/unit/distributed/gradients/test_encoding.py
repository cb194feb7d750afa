"""Gradients as bytes: round trips, parts, and what other programs make of them."""

from __future__ import annotations

import json

import hypothesis
import hypothesis.strategies as st
import pytest
import safetensors.torch
import torch

from surreal.base.errors import CodecError
from surreal.distributed.gradients.encoding import are_finite, cut, decode, encode, to_wire

TENSORS = {
    "model/a": torch.linspace(-1, 1, 15).reshape(3, 5),
    "model/b": torch.tensor(0.25),
    "critic/big": torch.linspace(-3, 3, 9000),
}


def joined(pieces: list[memoryview]) -> bytearray:
    return bytearray(b"".join(pieces))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_round_trip_is_what_safetensors_reads_too(dtype: str) -> None:
    sent = to_wire({**TENSORS, "model/none": torch.zeros(0)}, dtype)
    data = joined(encode(sent))
    found = decode(data, {name: tuple(tensor.shape) for name, tensor in TENSORS.items()})
    theirs = safetensors.torch.load(bytes(data))
    assert found.keys() == theirs.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        expected = tensor.to(getattr(torch, dtype))
        assert torch.equal(theirs[name], expected)
        assert torch.equal(found[name], expected.float())
        assert found[name].dtype == torch.float32


def test_large_tensors_travel_from_their_own_memory() -> None:
    sent = to_wire(TENSORS, "float32")
    sent["critic/big"][0] = 7.0
    pieces = encode(sent)
    sent["critic/big"][0] = 8.0
    assert float(decode(joined(pieces))["critic/big"][0]) == 8.0


@pytest.mark.parametrize("part_bytes", [1, 7, 100, 36_000, 1 << 20])
def test_parts_are_of_the_size_that_is_allowed_and_all_that_there_is(part_bytes: int) -> None:
    pieces = encode(to_wire(TENSORS, "float32"))
    parts = cut(pieces, part_bytes)
    assert joined([piece for part in parts for piece in part]) == joined(pieces)
    assert all(sum(map(len, part)) == part_bytes for part in parts[:-1])
    assert 0 < sum(map(len, parts[-1])) <= part_bytes


def test_tensors_of_any_floating_point_and_order_are_brought_to_the_wire() -> None:
    sent = to_wire({"model/a": torch.randn(4, 3, dtype=torch.float64).T}, "float32")
    assert sent["model/a"].shape == (3, 4)
    assert torch.equal(decode(joined(encode(sent)))["model/a"], sent["model/a"])
    with pytest.raises(ValueError, match="floating point"):
        to_wire({"model/a": torch.ones(2, dtype=torch.int64)}, "float32")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_is_known(value: float) -> None:
    broken = {"model/a": torch.tensor([1.0, value])}
    assert are_finite(TENSORS)
    assert not are_finite(broken)
    with pytest.raises(CodecError, match="not finite"):
        decode(joined(encode(broken)))


GOOD = bytes(joined(encode({"model/a": torch.ones(4), "model/b": torch.ones(2, 2)})))


@hypothesis.given(st.data())
def test_damaged_bytes_are_refused_or_give_tensors_of_the_shapes_that_are_expected(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    try:
        found = decode(damaged, {"model/a": (4,), "model/b": (2, 2)})
    except CodecError:
        return
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} in (
        {"model/a": (4,), "model/b": (2, 2)},
        {"model/a": (4,)},
    )


@pytest.mark.parametrize("entry", [{"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}, [], None, 7])
def test_what_a_header_promises_is_checked_before_anything_is_made_of_it(entry: object) -> None:
    header = json.dumps({"__metadata__": {"format": "surreal-gradients", "version": "1"}, "model/a": entry}).encode()
    header += b" " * (-len(header) % 8)
    with pytest.raises(CodecError):
        decode(bytearray(len(header).to_bytes(8, "little") + header + bytes(16)))
