"""Exports a policy, and plays the file against the policy before it counts: `surreal export`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from surreal.agent.exported import FORMATS, ExportedFile
from surreal.api import load
from surreal.base.errors import ConfigError, ExportError
from surreal.base.system.files import write_whole
from surreal.plugins.export.checking import check_alike
from surreal.plugins.export.formats import require_onnx, to_onnx, to_torchscript
from surreal.plugins.export.metadata import describe_export
from surreal.plugins.export.module import PolicyModule, policy_module

_WRITERS: dict[str, Callable[[PolicyModule, dict[str, Tensor], str], bytes]] = {
    "torchscript": to_torchscript,
    "onnx": to_onnx,
}


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    file_format: str  #: torchscript or onnx
    size: int  #: bytes
    metadata: dict[str, Any]
    steps: int  #: in which it acted as the policy does


def export_policy(
    source: str | os.PathLike[str],
    path: Path | None = None,
    *,
    file_format: str | None = None,
    trust: bool = False,
) -> Exported:
    """Export a policy with its filters and its way to the environment's actions.

    Args:
        source: `best.safetensors`, a learner's checkpoint, or a run's folder, as `surreal.load` takes them.
        path: path of the file to write; None: next to the policy, under its name.
        file_format: "torchscript" or "onnx"; None: as the path ends, else torchscript.
        trust: see `surreal.load`.

    Raises:
        CheckpointError: there is no such policy, or it is damaged.
        ConfigError: format and path do not fit, or the policy names code outside of Surreal and is not trusted.
        ExportError: the policy cannot be exported, or the file would not act as it does.
        OSError: the file cannot be written.
    """
    chosen = _choose_format(path, file_format)
    if chosen == "onnx":
        require_onnx()
    policy = load(source, trust=trust)
    if policy.saved.exported is not None:
        raise ExportError(f"{source} is an exported policy already; export the checkpoint that it came of")
    target = path or _beside(policy.saved.path, chosen)
    module = policy_module(policy.agent, policy.obs_spec, policy.action_space)
    metadata = describe_export(policy, module, chosen)
    data = _WRITERS[chosen](module, module.example(), json.dumps(metadata))
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / f"policy{_ending_of(chosen)}"
        trial.write_bytes(data)
        steps = check_alike(policy, module, ExportedFile(trial))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, data)
    return Exported(target, chosen, len(data), metadata, steps)


def _choose_format(path: Path | None, asked: str | None) -> str:
    if asked is not None and asked not in _WRITERS:
        raise ConfigError(f"--format is {asked!r}; it must be {' or '.join(_WRITERS)}", key="--format")
    if path is None:
        return asked or "torchscript"
    found = FORMATS.get(path.suffix)
    if found is None or (asked is not None and asked != found):
        endings = ", ".join(f"{ending} for {name}" for ending, name in FORMATS.items())
        raise ConfigError(f"{path} does not end as the format's files do: {endings}", key="-o")
    return found


def _ending_of(file_format: str) -> str:
    return next(ending for ending, name in FORMATS.items() if name == file_format)


def _beside(source: str, file_format: str) -> Path:
    """The file's place: next to the policy, or here if that came from a URL."""
    name = Path(source.rpartition("/")[2]).with_suffix(_ending_of(file_format))
    return Path(name) if "://" in source else Path(source).parent / name
