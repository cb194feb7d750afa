"""The bytes of a checkpoint, and single files of them.

Tensors by name, and in the safetensors metadata `format`, `version`, `step`, `checksum` (CRC-32 of all the rest) and
`metadata` (JSON: learner state, configuration, scores). Reading one executes nothing: no pickle, no `torch.load`.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from surreal.base.checkpoint.files import read_file, write_file
from surreal.base.errors import CheckpointError, DivergedError
from surreal.base.pytorch import name_not_finite

FORMAT = "surreal-checkpoint"
VERSION = 2


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read and verified."""

    path: str  #: file or URL it came from
    step: int  #: what it was saved under
    tensors: dict[str, Tensor]  #: on the CPU
    metadata: dict[str, Any]  #: as it was handed to `save`, tuples as lists


def save_checkpoint(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, step: int
) -> None:
    """Write one checkpoint file, so that a reader sees the old file or the new one and never a part.

    Raises:
        CheckpointError: it could not be written.
        DivergedError: a tensor holds nan or an infinity: who restored it would go on from nothing.
        ValueError: `metadata` is not JSON-able.
    """
    target = os.fspath(path)
    write_file(target, encode_checkpoint(tensors, metadata, step=step, target=target))


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify one checkpoint file.

    Raises:
        CheckpointError: it is missing, cut off, damaged, not finite, of a newer version, or no checkpoint of ours.
    """
    source = os.fspath(path)
    return decode_checkpoint(read_file(source), source)


def encode_checkpoint(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, step: int, target: str = "the checkpoint"
) -> bytes:
    """Give the bytes of a checkpoint: tensors as they are now, whatever becomes of them later.

    Args:
        tensors: on any device.
        metadata: JSON-able, with string keys; NaN and infinities are kept.
        step: what it is saved under, >= 0.
        target: what it is for, in messages.

    Raises:
        DivergedError: a tensor holds nan or an infinity.
        ValueError: `metadata` is not JSON-able.
    """
    on_cpu = _standalone(tensors)
    if name := name_not_finite(on_cpu):
        raise DivergedError(f"{target} is not written: {name} holds nan or an infinity")
    text = json.dumps(_to_json(dict(metadata)), allow_nan=False)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "step": str(step),
        "checksum": str(_checksum(step, text, on_cpu)),
        "metadata": text,
    }
    return safetensors.torch.save(on_cpu, header)


def decode_checkpoint(data: bytes, source: str) -> Checkpoint:
    """Verify the bytes of a checkpoint, and give what they hold.

    Args:
        data: of a whole file.
        source: file or URL that they came from.

    Raises:
        CheckpointError: they are cut off, damaged, not finite, of a newer version, or no checkpoint of ours.
    """
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except Exception as error:  # whatever a parser makes of bytes that may be anything
        raise CheckpointError(f"checkpoint {source} is cut off or no safetensors file ({len(data)} bytes)") from error
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{source} is a safetensors file, but no Surreal checkpoint")
    if header.get("version") != str(VERSION):
        raise CheckpointError(
            f"checkpoint {source} has version {header.get('version')!r}; this program reads {VERSION}"
        )
    try:
        step, checksum = int(header["step"]), int(header["checksum"])
        text = header["metadata"]
        metadata = _from_json(json.loads(text))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {source} is damaged: its metadata cannot be read") from error
    if checksum != _checksum(step, text, tensors):
        raise CheckpointError(f"checkpoint {source} is damaged: its checksum is wrong")
    if not isinstance(metadata, dict):
        raise CheckpointError(f"checkpoint {source} is damaged: its metadata is no mapping")
    if name := name_not_finite(tensors):
        raise CheckpointError(f"checkpoint {source} is of no use: {name} holds nan or an infinity")
    return Checkpoint(source, step, tensors, metadata)


def check_tensors(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Compare names, shapes and dtypes.

    Raises:
        CheckpointError: names the first tensor that differs, in the order of `expected`.
    """
    for name, tensor in expected.items():
        if name not in found:
            raise CheckpointError(f"the checkpoint is of another model: it has no tensor {what}/{name}")
        ours, theirs = _describe(tensor), _describe(found[name])
        if ours != theirs:
            raise CheckpointError(f"the checkpoint is of another model: {what}/{name} is {theirs}, ours is {ours}")
    for name in found:
        if name not in expected:
            raise CheckpointError(f"the checkpoint is of another model: ours has no tensor {what}/{name}")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _standalone(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bring tensors to the CPU, contiguous, none sharing memory with another (safetensors refuses that)."""
    result: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        result[name] = plain.clone() if address in seen else plain
        seen.add(address)
    return result


def _checksum(step: int, metadata: str, tensors: Mapping[str, Tensor]) -> int:
    value = zlib.crc32(f"{step} {metadata}".encode())
    for name in sorted(tensors):
        value = zlib.crc32(f"{name} {_describe(tensors[name])}".encode(), value)
        flat = tensors[name].reshape(-1)
        if flat.numel():
            value = zlib.crc32(flat.view(torch.uint8).numpy().data, value)
    return value


def _to_json(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by {"__float__": "nan"}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": repr(value)}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"metadata has the key {key!r}; keys must be strings")
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"metadata holds a {type(value).__name__}; it must be JSON-able")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _from_json(item) for key, item in value.items()}
    return [_from_json(item) for item in value] if isinstance(value, list) else value
