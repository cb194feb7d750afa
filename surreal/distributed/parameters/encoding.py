"""Parameters as bytes: safetensors, checked before anything is allocated. No I/O; used by broadcaster and listener.

Layout (safetensors): 8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape, offsets; and
`__metadata__` with our format, its version, and the model's own header), the tensors' bytes without holes. Large ones
travel in several parts, cut anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from surreal.distributed.connection.tensor_bytes import DTYPE_NAMES, tensor_pieces
from surreal.errors import CodecError, DivergedError
from surreal.utils.pytorch import name_not_finite

FORMAT = "surreal-parameters"
VERSION = "1"
#: Bytes of parameters that a listener accepts unless told otherwise.
DEFAULT_MAX_BYTES = 16 << 30
_MAX_HEADER_BYTES = 16 << 20
_ITEM_BYTES = {name: dtype.itemsize for dtype, name in DTYPE_NAMES.items()}


def encode_parameters(tensors: Mapping[str, Tensor], header: Mapping[str, Any] | None = None) -> bytes:
    """Encode named tensors, copying them from any device; they must not change meanwhile.

    Args:
        tensors: by name.
        header: plain data that travels with them; see `Module.header`.

    Raises:
        ValueError: a dtype that we do not transport (complex, quantised, sparse).
        DivergedError: a parameter is not finite: an agent could do nothing with it.
    """
    flat = {name: tensor.detach().to("cpu") for name, tensor in tensors.items()}
    if name := name_not_finite(flat):
        raise DivergedError(f"parameters that are not finite are not broadcast: {name} holds nan or an infinity")
    try:
        metadata = {"format": FORMAT, "version": VERSION, "model": json.dumps(header or {})}
        blob = b"".join(tensor_pieces({name: tensor.contiguous() for name, tensor in flat.items()}, metadata))
        _check_header(memoryview(blob), len(blob))
    except (RuntimeError, ValueError, CodecError) as error:
        raise ValueError(f"these parameters cannot be broadcast: {error}") from error
    return blob


def decode_parameters(blob: bytes, *, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Decode named CPU tensors, and the model's header.

    Raises:
        CodecError: cut off, corrupted, too large, not ours, or of a newer version.
    """
    header = _check_header(memoryview(blob), max_bytes)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(blob)
    except Exception as error:  # whatever hostile bytes provoke in the library is one error here
        raise CodecError(f"parameters are corrupted: {error}") from error
    if any(not isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise CodecError("parameters are corrupted: not tensors")
    if name := name_not_finite(tensors):
        raise CodecError(f"parameters are not finite: {name} holds nan or an infinity")
    return tensors, header


def split(blob: bytes, part_bytes: int) -> list[memoryview]:
    """Cut `blob` into parts of at most `part_bytes` (>= 1), without copying."""
    view = memoryview(blob)
    return [view[start : start + part_bytes] for start in range(0, len(blob), part_bytes)]


def _check_header(blob: memoryview, max_bytes: int) -> dict[str, Any]:
    """Check what the bytes say of themselves; returns the model's header, {} if there is none."""
    if len(blob) > max_bytes:
        raise CodecError(f"parameters are {len(blob)} bytes; at most {max_bytes} are accepted")
    if len(blob) < 8:
        raise CodecError(f"parameters are cut off: {len(blob)} bytes")
    header_bytes = int.from_bytes(blob[:8], "little")
    if header_bytes > min(_MAX_HEADER_BYTES, len(blob) - 8):
        raise CodecError(f"parameters are cut off or corrupted: a header of {header_bytes} of {len(blob)} bytes")
    try:
        header = json.loads(bytes(blob[8 : 8 + header_bytes]))
    except (ValueError, RecursionError) as error:
        raise CodecError(f"parameters are corrupted: {error}") from None
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise CodecError(f"bytes are not parameters of format {FORMAT}")
    if metadata.get("version") != VERSION:
        raise CodecError(f"parameters are of format version {metadata.get('version')!r}; this is version {VERSION}")
    data_bytes = sum(_declared_bytes(name, entry) for name, entry in header.items())
    if data_bytes != len(blob) - 8 - header_bytes:
        raise CodecError(f"parameters are cut off: {data_bytes} bytes declared, {len(blob) - 8 - header_bytes} there")
    try:
        model = json.loads(metadata.get("model", "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"parameters are corrupted: the model's header is no JSON: {error}") from None
    if not isinstance(model, dict):
        raise CodecError("parameters are corrupted: the model's header is no object")
    return model


def _declared_bytes(name: str, entry: Any) -> int:
    try:
        item_bytes, shape = _ITEM_BYTES[entry["dtype"]], entry["shape"]
        start, end = entry["data_offsets"]
        is_valid = all(isinstance(n, int) and n >= 0 for n in (*shape, start, end))
        if is_valid and end - start == item_bytes * math.prod(shape):
            return int(end - start)
    except (KeyError, TypeError, ValueError):
        pass
    raise CodecError(f"parameters are corrupted: tensor {name!r} is described by {str(entry)[:200]}")
