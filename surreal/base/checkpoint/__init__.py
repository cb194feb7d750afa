"""Checkpoints: one safetensors file each, written whole or not at all, in folders or behind fsspec URLs.

format.py      the bytes of a checkpoint, and one file of them
files.py       files through fsspec, whole or not there
ranking.py     scores of a run's checkpoints, from the rounds of its evaluation
place.py       one folder of checkpoints: which there are, which stay, which are set aside
store.py       the same with their content: what is saved, and the newest whole one
uploads.py     sends checkpoints to a place that may be slow or away, on a thread of its own
run.py         the checkpoints of one run, in its folder and elsewhere
generators.py  the state of random generators

Public names are imported on first use (PEP 562): who only looks at places, as the launcher does, loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surreal.base.checkpoint.format import (
        FORMAT,
        VERSION,
        Checkpoint,
        check_tensors,
        load_checkpoint,
        save_checkpoint,
    )
    from surreal.base.checkpoint.run import RunCheckpoints
    from surreal.base.checkpoint.store import CheckpointStore, open_checkpoint

__all__ = [
    "FORMAT",
    "VERSION",
    "Checkpoint",
    "CheckpointStore",
    "RunCheckpoints",
    "check_tensors",
    "load_checkpoint",
    "open_checkpoint",
    "save_checkpoint",
]

_MODULES = {
    "FORMAT": "format",
    "VERSION": "format",
    "Checkpoint": "format",
    "CheckpointStore": "store",
    "RunCheckpoints": "run",
    "check_tensors": "format",
    "load_checkpoint": "format",
    "open_checkpoint": "store",
    "save_checkpoint": "format",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
