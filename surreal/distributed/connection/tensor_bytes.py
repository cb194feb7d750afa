"""Tensors as safetensors bytes, written from the tensors' own memory and read in place. No I/O.

The library's own `save` copies each tensor twice, and then all of them. For 10^7 numbers, that takes longer than
sending them. Layout: 8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape, offsets; and
`__metadata__` with our format, its version, and the caller's strings), the tensors' bytes in the header's order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surreal.base.errors import CodecError
from surreal.base.pytorch import name_not_finite

#: dtype -> its name in safetensors.
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
_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
#: Pieces smaller than this are joined: one system call is dearer than a small copy.
_JOIN_BYTES = 16 << 10
#: dtypes whose norm shows at once whether all numbers are finite.
_SHORT_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
#: Largest header that is cached.
_MAX_KNOWN_BYTES = 64 << 10


class Format(NamedTuple):
    """The format that a file must have."""

    name: str
    version: str
    subject: str  #: subject and verb of messages, such as "parameters are"
    max_header_bytes: int = 16 << 20  #: larger ones are refused before they are read


def tensor_pieces(tensors: Mapping[str, Tensor], form: Format, **metadata: str) -> list[memoryview]:
    """Return the pieces of a safetensors file: memory of contiguous tensors on the CPU, not to be changed until used.
    Raises `ValueError` for a dtype that is not transported (complex, quantized), a sparse tensor, or too large a
    header.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES or tensor.layout != torch.strided:
            raise ValueError(f"{name} is of {tensor.dtype}, {tensor.layout}, which is not transported")
    entries = _describe(tuple((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()))
    known = json.dumps({"format": form.name, "version": form.version, **metadata}, separators=(",", ":"))
    text = f'{{"__metadata__":{known}{entries}}}'.encode()
    text += b" " * (-len(text) % 8)
    if len(text) > form.max_header_bytes:
        raise ValueError(f"a header of {len(text)} bytes would not be read again; at most {form.max_header_bytes} are")
    pieces = [memoryview(len(text).to_bytes(8, "little") + text)]
    pieces += [_bytes_of(tensor) for tensor in tensors.values() if tensor.numel()]
    return list(_join_small(pieces))


def read_tensors(
    data: bytes | bytearray | memoryview, form: Format, *, must_be_finite: bool = False
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file that `tensor_pieces` wrote, and its metadata. Sizes are checked before memory is allocated. Data that
    are writable become the memory of the tensors that are aligned for their dtype.

    Raises `CodecError` if it is cut off, corrupted, of another format, or, where tensors must be, not finite.
    """
    if len(data) < 8:
        raise CodecError(f"{form.subject} cut off: {len(data)} bytes")
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > min(form.max_header_bytes, len(data) - 8):
        raise CodecError(f"{form.subject} cut off or corrupted: a header of {header_bytes} of {len(data)} bytes")
    start = 8 + header_bytes
    text = bytes(data[8:start])
    layout = _known_layout(text, form) if len(text) <= _MAX_KNOWN_BYTES else _layout(text, form)
    if layout.size != len(data) - start:
        raise CodecError(
            f"{form.subject} cut off or corrupted: {layout.size} bytes declared, {len(data) - start} there"
        )
    memory = bytearray(data) if memoryview(data).readonly else memoryview(data)
    dtype, is_known_finite = layout.dtype, False
    if dtype is not None and start % dtype.itemsize == 0:
        whole = torch.frombuffer(memory, dtype=dtype, offset=start)
        parts = whole.split_with_sizes([(place.end - place.begin) // dtype.itemsize for place in layout.places])
        pairs = zip(layout.names, layout.places, parts, strict=True)
        tensors = {name: part.view(place.shape) for name, place, part in pairs}
        if must_be_finite and dtype in _SHORT_FLOATS:
            is_known_finite = math.isfinite(torch.linalg.vector_norm(whole, dtype=torch.float32))
    else:
        places = zip(layout.names, layout.places, strict=True)
        tensors = {name: _tensor_at(memory, start, place) for name, place in places}
    if must_be_finite and not is_known_finite and (name := name_not_finite(tensors)):
        raise CodecError(f"{form.subject} not finite: {name[:100]} holds nan or an infinity")
    return tensors, dict(layout.metadata)


def split(blob: bytes | bytearray, part_bytes: int) -> list[memoryview]:
    """Cut `blob` into parts of at most `part_bytes` (>= 1), without copying."""
    view = memoryview(blob)
    return [view[start : start + part_bytes] for start in range(0, len(blob), part_bytes)]


class _Place(NamedTuple):
    """Position of a tensor's bytes, after the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class _Layout(NamedTuple):
    """The content of a header, in the order of the bytes."""

    names: tuple[str, ...]
    places: tuple[_Place, ...]
    metadata: Mapping[str, str]
    dtype: torch.dtype | None  #: the common dtype of all tensors, if they have one
    size: int  #: of all tensors, bytes


def _layout(text: bytes, form: Format) -> _Layout:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{form.subject} corrupted: {error}") from None
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    named = [metadata.get("format"), metadata.get("version")] if isinstance(metadata, dict) else []
    if metadata is None or named != [form.name, form.version]:
        found = " ".join(str(part)[:40] for part in named)
        raise CodecError(f"{form.subject} not of format {form.name}, version {form.version}: {found or 'none'}")
    places: list[_Place] = []
    for name, entry in header.items():
        place = _check_entry(entry, places[-1].end if places else 0)
        if place is None:
            raise CodecError(f"{form.subject} corrupted: tensor {name[:100]!r} is described by {str(entry)[:200]}")
        places.append(place)
    dtypes = {place.dtype for place in places}
    size = places[-1].end if places else 0
    return _Layout(tuple(header), tuple(places), metadata, dtypes.pop() if len(dtypes) == 1 and size else None, size)


#: Headers of one model are read repeatedly.
_known_layout = lru_cache(maxsize=32)(_layout)


@lru_cache(maxsize=32)
def _describe(entries: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> str:
    header: dict[str, Any] = {}
    end = 0
    for name, dtype, shape in entries:
        begin, end = end, end + dtype.itemsize * math.prod(shape)
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"))[1:-1]
    return f",{text}" if text else ""


def _bytes_of(tensor: Tensor) -> memoryview:
    if tensor.dtype == torch.bfloat16:  # NumPy lacks it
        tensor = tensor.view(torch.int16)
    return memoryview(tensor.numpy().data).cast("B")


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


def _check_entry(entry: Any, begin: int) -> _Place | None:
    """Check the entry of a tensor that begins at `begin`; None if it is malformed."""
    try:
        dtype, shape, offsets = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if all(type(number) is int and 0 <= number < 2**63 for number in shape) and len(shape) <= 64:
            size = dtype.itemsize * math.prod(shape)
            if offsets == [begin, begin + size]:
                return _Place(dtype, tuple(shape), begin, begin + size)
    except (KeyError, TypeError, ValueError):
        pass
    return None


def _tensor_at(memory: bytearray | memoryview, start: int, place: _Place) -> Tensor:
    offset, size = start + place.begin, place.end - place.begin
    if size == 0:
        return torch.empty(place.shape, dtype=place.dtype)
    if offset % place.dtype.itemsize:
        memory, offset = bytearray(memory[offset : offset + size]), 0
    count = size // place.dtype.itemsize
    return torch.frombuffer(memory, dtype=place.dtype, count=count, offset=offset).view(place.shape)
