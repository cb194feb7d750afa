"""Files of policies that nobody has trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from surreal.base.checkpoint import save_checkpoint
from surreal.config import add_python_path, load_config
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.process.registry import plain_config


def write_policy(
    path: Path, preset: str | Path, *overrides: str, kind: str = "policy", change: Callable[[Any], object] | None = None
) -> Path:
    """Write the policy that a configuration begins with, as an evaluation ("policy") or a learner ("learner") would.

    `change` gets the model before.
    """
    config = load_config(preset, [*overrides, "seed=3"])
    add_python_path(config.python_path)
    model = build_model(config, build_spaces(config))
    if change is not None:
        change(model)
    prefix = "model/" if kind == "learner" else ""
    content = {"kind": kind, "version": 7, "config": plain_config(config), "model": model.header()}
    content["state"] = {"model": model.header()}
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f"{prefix}{name}": tensor for name, tensor in model.tensors().items()}
    save_checkpoint(path, tensors, content, step=7)
    return path
