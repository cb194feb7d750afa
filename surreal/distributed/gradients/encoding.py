"""Gradients as bytes: safetensors, written from the tensors' own memory, and read where they lie. No I/O.

Layout (safetensors): 8 bytes little-endian length of the header, the header (JSON: `group/name` -> dtype, shape,
offsets; and `__metadata__` with our format and its version), the tensors' bytes without holes. All are float32, or all
bfloat16.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from surreal.distributed.connection.tensor_bytes import tensor_pieces
from surreal.errors import CodecError

FORMAT = "surreal-gradients"
VERSION = "1"
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
#: What a gradient travels as, by the name that settings have for it.
NAMES = {"float32": "F32", "bfloat16": "BF16"}
_MAX_HEADER_BYTES = 16 << 20


def to_wire(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Bring gradients to the CPU, contiguous, and to a dtype, "float32" or "bfloat16"; leaves out empty ones.

    Those that are so already are not copied.

    Raises:
        ValueError: one is no tensor of floating point.
    """
    wanted = _DTYPES[NAMES[dtype]]
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(f"the gradient of {name} is of {tensor.dtype}; it must be of floating point")
    return {name: each.detach().to("cpu", wanted).contiguous() for name, each in tensors.items() if each.numel()}


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all norms are finite; those of tensors that are finite are, but for numbers beyond 1e19."""
    return all(math.isfinite(torch.linalg.vector_norm(tensor, dtype=torch.float32)) for tensor in tensors.values())


def encode(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """Encode what `to_wire` gave; the pieces are the tensors' memory, which must not change until they are sent."""
    return tensor_pieces(tensors, {"format": FORMAT, "version": VERSION})


def cut(pieces: Sequence[memoryview], part_bytes: int) -> list[list[memoryview]]:
    """Divide pieces into parts of at most `part_bytes` (>= 1) each, without copying."""
    parts: list[list[memoryview]] = [[]]
    room = part_bytes
    for piece in pieces:
        while piece:
            if room == 0:
                parts.append([])
                room = part_bytes
            parts[-1].append(piece[:room])
            taken = len(parts[-1][-1])
            piece, room = piece[taken:], room - taken
    return parts


def decode(data: bytearray, expected: Mapping[str, Sequence[int]] | None = None) -> dict[str, Tensor]:
    """Decode gradients by `group/name`; float32 ones are the bytes' own memory.

    Args:
        data: what was pushed, whole.
        expected: the shapes of all that there may be; None: whatever comes.

    Raises:
        CodecError: cut off, corrupted, not ours, of another model, or not finite.
    """
    if len(data) < 8:
        raise CodecError(f"a gradient is cut off: {len(data)} bytes")
    header_bytes = int.from_bytes(data[:8], "little")
    start = 8 + header_bytes
    if header_bytes > min(_MAX_HEADER_BYTES, len(data) - 8) or start % 8:
        raise CodecError(f"a gradient is cut off or corrupted: a header of {header_bytes} of {len(data)} bytes")
    try:
        header = json.loads(bytes(data[8:start]))
    except (ValueError, RecursionError) as error:
        raise CodecError(f"a gradient is corrupted: {error}") from None
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if metadata != {"format": FORMAT, "version": VERSION}:
        raise CodecError(f"bytes are no gradient of format {FORMAT}, version {VERSION}")
    found: dict[str, Tensor] = {}
    end = 0
    for name, entry in header.items():
        dtype, shape, end = _check_entry(name, entry, end, len(data) - start)
        if expected is not None and tuple(expected.get(name, (-1,))) != shape:
            raise CodecError(f"a gradient is of another model: {name} is {list(shape)} there")
        count = math.prod(shape)
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=start + end - count * dtype.itemsize)
        found[name] = flat.view(shape).to(torch.float32)
    if end != len(data) - start:
        raise CodecError(f"a gradient is cut off or corrupted: {end} bytes declared, {len(data) - start} there")
    if not are_finite(found):
        raise CodecError("a gradient is not finite")
    return found


def _check_entry(name: str, entry: Any, begin: int, size: int) -> tuple[torch.dtype, tuple[int, ...], int]:
    try:
        dtype, shape, offsets = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        is_valid = all(type(number) is int and number > 0 for number in shape)
        end = begin + dtype.itemsize * math.prod(shape)
        if is_valid and "/" in name and offsets == [begin, end] and end <= size:
            return dtype, tuple(shape), end
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise CodecError(f"a gradient is corrupted: {name[:100]!r} is described by {str(entry)[:200]}")
