"""Tensors as safetensors bytes, from the tensors' own memory: for what goes into a socket, or is joined once.

The library's own `save` copies each tensor twice, and then all of them: at 10^7 numbers, longer than it takes to send.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Names of dtypes in safetensors.
DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
#: Pieces smaller than this are joined: one system call is dearer than a small copy.
_JOIN_BYTES = 16 << 10


def tensor_pieces(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> list[memoryview]:
    """Give the bytes of a safetensors file in pieces, which are the tensors' memory: it must not change until used.

    Args:
        tensors: by name; on the CPU, contiguous.
        metadata: strings that go along.

    Raises:
        ValueError: a dtype that is not transported (complex, quantised), or a sparse tensor.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES or tensor.layout != torch.strided:
            raise ValueError(f"{name} is of {tensor.dtype}, {tensor.layout}, which is not transported")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pieces = [memoryview(len(text).to_bytes(8, "little") + text)]
    pieces += [tensor.reshape(-1).view(torch.uint8).numpy().data for tensor in tensors.values() if tensor.numel()]
    return list(_join_small(pieces))


def _join_small(pieces: Sequence[memoryview]) -> Iterator[memoryview]:
    small: list[memoryview] = []
    for piece in pieces:
        if len(piece) < _JOIN_BYTES:
            small.append(piece)
            continue
        if small:
            yield memoryview(b"".join(small))
            small = []
        yield piece
    if small:
        yield memoryview(b"".join(small))
