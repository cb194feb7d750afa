"""Checkpoints: one safetensors file each, written whole or not at all, in folders or behind fsspec URLs.

Public names are imported on first use (PEP 562), so that the launcher, which only lists places, loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surreal.base.checkpoint.format import Checkpoint, check_tensors, load_checkpoint, save_checkpoint
    from surreal.base.checkpoint.run import RunCheckpoints
    from surreal.base.checkpoint.store import CheckpointStore, open_checkpoint

__all__ = [
    "Checkpoint", "CheckpointStore", "RunCheckpoints", "check_tensors", "load_checkpoint", "open_checkpoint",
    "save_checkpoint",
]  # fmt: skip

_MODULES = {"CheckpointStore": "store", "RunCheckpoints": "run", "open_checkpoint": "store"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'format')}"), name)
