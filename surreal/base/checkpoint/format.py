"""Format of a checkpoint: its bytes, single files, and the state of random generators in its metadata.

A checkpoint holds tensors by name, and in the safetensors metadata `format`, `version`, `step`, `checksum` (CRC-32 of
all the rest) and `metadata` (JSON: learner state, configuration, scores). Reading one executes no code.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    """A verified checkpoint."""

    path: str  #: file or URL
    step: int  #: step that it was saved at
    tensors: dict[str, Tensor]  #: on the CPU
    metadata: dict[str, Any]  #: as given to `save`, with lists for tuples


def save_checkpoint(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, step: int
) -> None:
    """Write one checkpoint file so that a reader sees the old file or the new one, never a part.

    Raises:
        CheckpointError: it could not be written.
        DivergedError: a tensor holds nan or an infinity.
        ValueError: `metadata` is not JSON-able.
    """
    target = os.fspath(path)
    write_file(target, encode_checkpoint(tensors, metadata, step=step, target=target))


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify one checkpoint file; raises `CheckpointError` if it is not whole, finite and of this version."""
    source = os.fspath(path)
    return decode_checkpoint(read_file(source), source)


def encode_checkpoint(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, step: int, target: str = "the checkpoint"
) -> bytes:
    """Return the bytes of a checkpoint, with the current values of the tensors.

    Args:
        tensors: on any device.
        metadata: JSON-able, with string keys; NaN and infinities are kept.
        step: >= 0.
        target: name of the checkpoint in messages.

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
    """Verify and decode the bytes of a checkpoint that came from a file or URL; raises as `load_checkpoint`."""
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except Exception as error:  # hostile bytes can make the parser raise anything
        raise CheckpointError(
            f"checkpoint {source} is cut off or not a safetensors file ({len(data)} bytes)"
        ) from error
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{source} is a safetensors file, but not a Surreal checkpoint")
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
        raise CheckpointError(f"checkpoint {source} is damaged: its metadata is not a mapping")
    if name := name_not_finite(tensors):
        raise CheckpointError(f"checkpoint {source} cannot be used: {name} holds nan or an infinity")
    return Checkpoint(source, step, tensors, metadata)


def check_tensors(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Compare names, shapes and dtypes; the `CheckpointError` names the first tensor that differs."""
    for name, tensor in expected.items():
        if name not in found:
            raise CheckpointError(f"the checkpoint is of another model: it has no tensor {what}/{name}")
        needed, given = _describe(tensor), _describe(found[name])
        if needed != given:
            raise CheckpointError(
                f"the checkpoint is of another model: {what}/{name} is {given}, but this model has {needed}"
            )
    for name in found:
        if name not in expected:
            raise CheckpointError(f"the checkpoint is of another model: this model has no tensor {what}/{name}")


def random_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the states of a generator, which other threads may use, and of the global generators; JSON-able.

    Learners draw by seed and update, so only a replay's sampling and user classes need this.
    """
    bits = generator.bit_generator
    with bits.lock:
        own = _plain(bits.state)
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - user classes may use it
    state: dict[str, Any] = {
        "generator": own,
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": _to_text(torch.get_rng_state()),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [_to_text(device) for device in torch.cuda.get_rng_state_all()]
    return state


def set_random_state(state: Mapping[str, Any], generator: np.random.Generator) -> None:
    """Restore the states from `random_state`, while no other thread draws; raises `ValueError` if they do not fit."""
    try:
        version, words, gauss = state["python"]
        python = (version, tuple(words), gauss)
        torch_state = _from_text(state["torch"])
        generator.bit_generator.state = state["generator"]
        np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
        random.setstate(python)
        torch.set_rng_state(torch_state)
        devices = [_from_text(text) for text in state.get("cuda", ())]
        if torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(devices)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the state of the random generators cannot be used: {error}") from error


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _standalone(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the CPU, contiguous and without shared memory, which safetensors refuses."""
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
    """Encode NaN and infinities, which JSON lacks, as {"__float__": "nan"}."""
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


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _to_text(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _from_text(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())
