"""Values of a call between processes, as bytes.

A value is None, a bool, a number, a string, a list or tuple (which arrives as a list), a mapping with string keys, a
NumPy array or a tensor. It travels as JSON, with tensors and arrays as safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal.base.errors import CodecError
from surreal.distributed.connection.tensor_bytes import Format, read_tensors, tensor_pieces

#: Largest request or answer, bytes. Parameters travel in other ways.
MAX_BYTES = 64 << 20
FORMAT = Format("surreal-call", "1", "a call is", max_header_bytes=MAX_BYTES)
_ARRAY, _TENSOR, _MAPPING = "__array__", "__tensor__", "__mapping__"
_MARKS = {_ARRAY, _TENSOR, _MAPPING}


def encode(value: Any) -> bytes:
    """Encode a value; raises `TypeError` if a part of it cannot be transported, `ValueError` if it is too large."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_flatten(value, tensors))
    data = b"".join(tensor_pieces(tensors, FORMAT, value=plain))
    if len(data) > MAX_BYTES:
        raise ValueError(f"a call carries {len(data)} bytes; it may carry {MAX_BYTES}")
    return data


def decode(data: bytes) -> Any:
    """Decode a value; raises `CodecError` if it is cut off, corrupted, or of another format."""
    if len(data) > MAX_BYTES:
        raise CodecError(f"a call carries {len(data)} bytes; it may carry {MAX_BYTES}")
    tensors, metadata = read_tensors(data, FORMAT)
    try:
        return _restore(json.loads(metadata["value"]), tensors)
    except Exception as error:  # any error of a parser on arbitrary bytes
        raise CodecError(f"a call is cut off or corrupted ({len(data)} bytes)") from error


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_flatten(item, tensors) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a mapping in a call has keys that are not strings")
        plain = {key: _flatten(item, tensors) for key, item in value.items()}
        return {_MAPPING: plain} if _MARKS & plain.keys() else plain
    if isinstance(value, np.ndarray | Tensor):
        mark = _TENSOR if isinstance(value, Tensor) else _ARRAY
        # A copy: arrays may be read-only or have strides that torch does not support.
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value, order="C"))
        name = str(len(tensors))
        tensors[name] = tensor.contiguous()
        return {mark: name}
    raise TypeError(f"a {type(value).__name__} is not transported in a call")


def _restore(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_restore(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, content),) = value.items()
        if mark == _TENSOR:
            return tensors[content]
        if mark == _ARRAY:
            return tensors[content].numpy()
        if mark == _MAPPING:
            value = content
    return {key: _restore(item, tensors) for key, item in value.items()}
