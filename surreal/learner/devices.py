"""Devices: choosing one by name, and moving batches to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from surreal.types import Batch


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:1` into a device; `auto` takes a GPU if there is one.

    Raises:
        ValueError: the name is unknown, or there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}; it must be auto, cpu or cuda")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {name!r}, but this machine has {torch.cuda.device_count()} CUDA device(s); use auto"
        )
    return device


def batch_to(batch: Batch, device: torch.device) -> Batch:
    """Move the tensors of a batch; from pinned memory the copy runs beside what the device does."""
    moved = {name: _tree_to(getattr(batch, name), device) for name in Batch._fields if name != "sample_info"}
    return batch._replace(**moved)


def _tree_to(tree: Any, device: torch.device) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.to(device, non_blocking=True)
    if isinstance(tree, Mapping):
        return {key: _tree_to(value, device) for key, value in tree.items()}
    return tuple(_tree_to(item, device) for item in tree)
