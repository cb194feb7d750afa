"""Parameters as bytes: safetensors, checked before anything is made of them. No I/O; for broadcaster and listener.

The model's own header travels in the metadata. Large ones travel in several parts, cut anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from surreal.base.errors import CodecError, DivergedError
from surreal.base.pytorch import name_not_finite
from surreal.distributed.connection.tensor_bytes import Format, read_tensors, tensor_pieces

FORMAT = Format("surreal-parameters", "1", "parameters are")
#: Bytes of parameters that a listener accepts unless told otherwise.
DEFAULT_MAX_BYTES = 16 << 30


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
        whole = {name: tensor.contiguous() for name, tensor in flat.items()}
        return b"".join(tensor_pieces(whole, FORMAT, model=json.dumps(header or {})))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"these parameters cannot be broadcast: {error}") from error


def decode_parameters(
    data: bytes | bytearray, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Decode named CPU tensors, and the model's header. A bytearray becomes the tensors' memory.

    Raises:
        CodecError: cut off, corrupted, too large, not ours, of another version, or not finite.
    """
    if len(data) > max_bytes:
        raise CodecError(f"parameters are {len(data)} bytes; at most {max_bytes} are accepted")
    tensors, metadata = read_tensors(data, FORMAT, must_be_finite=True)
    try:
        model = json.loads(metadata.get("model", "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"parameters are corrupted: the model's header is no JSON: {error}") from None
    if not isinstance(model, dict):
        raise CodecError("parameters are corrupted: the model's header is no object")
    return tensors, model


def split(blob: bytes, part_bytes: int) -> list[memoryview]:
    """Cut `blob` into parts of at most `part_bytes` (>= 1), without copying."""
    view = memoryview(blob)
    return [view[start : start + part_bytes] for start in range(0, len(blob), part_bytes)]
