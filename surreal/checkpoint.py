"""Checkpoints: one safetensors file each, written whole or not at all, in a folder or behind any fsspec URL.

File: tensors by name, and in the safetensors metadata `format`, `version`, `step`, `checksum` (CRC-32 of all the
rest) and `metadata` (JSON: learner state, configuration, scores). Reading one executes nothing: no pickle, no
`torch.load`. The learner writes them through a `CheckpointStore`; play and evaluation read single files with
`load_checkpoint`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fsspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from surreal.errors import CheckpointError, DivergedError
from surreal.utils.pytorch import name_not_finite

logger = logging.getLogger(__name__)

FORMAT = "surreal-checkpoint"
VERSION = 2
SUFFIX = ".safetensors"
_NAME = re.compile(r"(\d{10,19})\.safetensors")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read and verified."""

    path: str  #: file or URL it came from
    step: int  #: what it was saved under
    tensors: dict[str, Tensor]  #: on the CPU
    metadata: dict[str, Any]  #: as it was handed to `save`, tuples as lists


class CheckpointStore:
    """The checkpoints of one run: `NNNNNNNNNN.safetensors` in one folder, the last `keep` of them.

    Args:
        folder: a path, or a URL such as `s3://bucket/run/checkpoints`; made when the first checkpoint is saved.
        keep: how many to keep, the largest steps first, >= 1; raising it takes disk.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"checkpoints_to_keep is {keep}; it must be >= 1")
        self.folder = os.fspath(folder).rstrip("/")
        self.keep = keep

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
        """Write a checkpoint, then remove the oldest beyond `keep`.

        Args:
            step: >= 0; names the file and orders it. A checkpoint of the same step is replaced.
            tensors: on any device; written as they are now.
            metadata: JSON-able, with string keys; NaN and infinities are kept.

        Returns:
            The file's path.

        Raises:
            CheckpointError: it could not be written; checkpoints that were there remain.
        """
        if step < 0:
            raise ValueError(f"step is {step}; it must be >= 0")
        path = f"{self.folder}/{step:010d}{SUFFIX}"
        save_checkpoint(path, tensors, metadata, step=step)
        self._retain(os.path.basename(path))
        return path

    def newest_whole(self) -> Checkpoint | None:
        """Read the checkpoint of the largest step that can be read; None if there is none.

        One that was cut off or damaged is passed over with a warning.
        """
        for name in reversed(self.names()):
            try:
                return load_checkpoint(f"{self.folder}/{name}")
            except CheckpointError as error:
                logger.warning("passed over a checkpoint that cannot be used: %s", error)
        return None

    @property
    def newest_step(self) -> int | None:
        """The largest step that there is a checkpoint of, which may be damaged; None without any."""
        names = self.names()
        return int(names[-1].removesuffix(SUFFIX)) if names else None

    def load(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Read one checkpoint: a file name in this folder, or any path or URL.

        Raises:
            CheckpointError: it is missing, cut off, or no checkpoint.
        """
        text = os.fspath(path)
        return load_checkpoint(text if "/" in text or os.sep in text else f"{self.folder}/{text}")

    def names(self) -> list[str]:
        """File names of the checkpoints, by rising step; other files in the folder are left alone."""
        return sorted((name for name in self._listing() if _NAME.fullmatch(name)), key=lambda name: int(name[:-12]))

    def _listing(self) -> list[str]:
        file_system, folder = fsspec.core.url_to_fs(self.folder)
        try:
            file_system.invalidate_cache()
            return [os.path.basename(path.rstrip("/")) for path in file_system.ls(folder, detail=False)]
        except FileNotFoundError:
            return []

    def _retain(self, just_saved: str) -> None:
        # After going back to an older checkpoint the newest file is not the one with the largest step: it stays too.
        doomed = [name for name in self.names()[: -self.keep] if name != just_saved]
        doomed += [name for name in self._listing() if _TEMPORARY.fullmatch(name)]
        file_system, folder = fsspec.core.url_to_fs(self.folder)
        for name in doomed:
            try:
                file_system.rm_file(f"{folder}/{name}")
            except OSError as error:
                logger.warning("could not remove the old checkpoint %s/%s: %s", self.folder, name, error)


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
    data = safetensors.torch.save(on_cpu, header)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    try:
        file_system, place = fsspec.core.url_to_fs(target)
        _, temporary_place = fsspec.core.url_to_fs(temporary)
        file_system.makedirs(os.path.dirname(place), exist_ok=True)
        if "file" in _protocols(file_system):
            _write_local(temporary_place, place, data)
        else:
            file_system.pipe_file(temporary_place, data)
            file_system.mv(temporary_place, place)
    except OSError as error:
        raise CheckpointError(f"checkpoint {target} could not be written: {error}") from error


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify one checkpoint file.

    Raises:
        CheckpointError: it is missing, cut off, damaged, not finite, of a newer version, or no checkpoint of ours.
    """
    source = os.fspath(path)
    try:
        file_system, place = fsspec.core.url_to_fs(source)
        data: bytes = file_system.cat_file(place)
    except FileNotFoundError as error:
        raise CheckpointError(f"checkpoint {source} does not exist") from error
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"checkpoint {source} cannot be read: {error}") from error
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


def _protocols(file_system: Any) -> tuple[str, ...]:
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _write_local(temporary: str, place: str, data: bytes) -> None:
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    # The rename itself lies in the folder: without this a power cut could undo it.
    descriptor = os.open(os.path.dirname(place), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
