from __future__ import annotations

import json
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError, DivergedError
from surreal.distributed.connection.tensor_bytes import split
from surreal.distributed.parameters.published import decode_parameters, encode_parameters

NAMES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
DTYPES: list[torch.dtype] = [getattr(torch, name) for name in NAMES]
TENSORS = {
    **{str(dtype): torch.ones(2, 3).to(dtype) for dtype in DTYPES},
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 4),
}
BLOB = encode_parameters(TENSORS, {"obs": [1, None]})


def rewrite(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_round_trip_keeps_names_shapes_dtypes_and_values() -> None:
    decoded, header = decode_parameters(BLOB)
    assert header == {"obs": [1, None]}
    assert decoded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert decoded[name].dtype == tensor.dtype
        assert torch.equal(decoded[name], tensor)


def test_parts_of_tensors_and_tied_weights_are_encoded() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    decoded, _ = decode_parameters(encode_parameters({"a": base, "tied": base, "column": base[:, 1], "turned": base.T}))
    assert torch.equal(decoded["tied"], base)
    assert torch.equal(decoded["column"], base[:, 1])
    assert torch.equal(decoded["turned"], base.T)


def test_dtype_that_is_not_transported_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be broadcast"):
        encode_parameters({"a": torch.zeros(2, dtype=torch.complex64)})


def test_split_covers_the_blob_without_copies() -> None:
    parts = split(BLOB, 100)
    assert b"".join(parts) == BLOB
    assert all(len(part) == 100 for part in parts[:-1])
    assert len(parts[-1]) <= 100


def test_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(CodecError, match="at most 10 are accepted"):
        decode_parameters(BLOB, max_bytes=10)


@pytest.mark.parametrize("keep", [0, 7, 8, 20, len(BLOB) - 1])
def test_cut_off_bytes_are_refused(keep: int) -> None:
    with pytest.raises(CodecError):
        decode_parameters(BLOB[:keep])


def test_longer_bytes_are_refused() -> None:
    with pytest.raises(CodecError):
        decode_parameters(BLOB + b"x")


OURS = {"__metadata__": {"format": "surreal-parameters", "version": "1"}}


@pytest.mark.parametrize(
    "blob",
    [
        rewrite({}),
        rewrite({"__metadata__": {"format": "pt"}}),
        rewrite({"__metadata__": {"format": "surreal-parameters", "version": "2"}}),
        rewrite({**OURS, "a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}, b"1234"),
        rewrite({**OURS, "a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        rewrite({**OURS, "a": {"dtype": "O", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        rewrite({**OURS, "a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}, b"1234"),
        rewrite({**OURS, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"1234"),
        rewrite({**OURS, "a": [1]}, b""),
        rewrite({**OURS, "a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        b"\xff" * 8 + BLOB,
        (5).to_bytes(8, "little") + b"[[[[[",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"\xff\xfe",
        safetensors.torch.save({"a": torch.zeros(1)}),
    ],
)
def test_hostile_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(CodecError):
        decode_parameters(blob)


def test_overlapping_tensors_are_refused() -> None:
    entry = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
    with pytest.raises(CodecError):
        decode_parameters(rewrite({**OURS, "a": entry, "b": entry}, b"1234"))


@given(position=st.integers(0, len(BLOB) - 1), value=st.integers(0, 255), length=st.integers(0, 4))
def test_changed_bytes_give_tensors_or_a_codec_error(position: int, value: int, length: int) -> None:
    blob = BLOB[:position] + bytes([value]) * length + BLOB[position + length :]
    try:
        decoded, _ = decode_parameters(blob)
    except CodecError:
        return
    assert all(isinstance(tensor, torch.Tensor) for tensor in decoded.values())


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(CodecError):
        decode_parameters(blob)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite_are_neither_sent_nor_taken(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"a": torch.ones(3), "b": torch.tensor([1.0, bad])}
    with pytest.raises(DivergedError, match="b holds nan or an infinity"):
        encode_parameters(tensors)
    with monkeypatch.context() as foreign:  # a broadcaster that does not look
        foreign.setattr("surreal.distributed.parameters.published.name_not_finite", lambda tensors: "")
        blob = encode_parameters(tensors)
    with pytest.raises(CodecError, match="not finite: b"):
        decode_parameters(blob)
