"""What an exported file says of itself, in one JSON text: for whoever runs it, and for Surreal, which can play it.

format_version  1
format          torchscript or onnx
surreal, torch  versions that wrote it
policy          version of the parameters, classes of model and agent, environment
inputs          name, shape without the batch axis, dtype, kind and bounds, is_optional
outputs         the same; of discrete actions `n` or `nvec`, and `start`, the first of them
outside         wrappers and stacked frames of the environment: what the file does not do
config          of the run, without addresses
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from surreal import __version__
from surreal.agent.exported import FORMAT_VERSION, MASK, NEXT_STATE, STATE
from surreal.api import Policy
from surreal.base import tree
from surreal.base.specs import spaces_of
from surreal.config import Config
from surreal.plugins.export.module import PolicyModule
from surreal.run.build.wrapping import wrapper_specs
from surreal.run.process.registry import plain_config


def describe_export(policy: Policy, module: PolicyModule, file_format: str) -> dict[str, Any]:
    """Explain what a file is.

    Args:
        policy: which it was made of.
        module: what it holds.
        file_format: torchscript or onnx.
    """
    config = policy.config
    leaves = dict(zip(module.obs_names, tree.leaves(spaces_of(policy.observation_space)), strict=True))
    inputs = [_describe(name, space) for name, space in leaves.items()]
    if module.mask_width:
        inputs.append({"name": MASK, "shape": [module.mask_width], "dtype": "bool", "is_optional": True})
    outputs = [_describe(name, space) for name, space in module.actions.leaves.items()]
    if module.state_shape is not None:
        state = {"shape": list(module.state_shape), "dtype": "float32"}
        inputs.append({"name": STATE, **state})
        outputs.append({"name": NEXT_STATE, **state})
    return {
        "format_version": FORMAT_VERSION,
        "format": file_format,
        "surreal": __version__,
        "torch": torch.__version__,
        "policy": {
            "version": policy.version,
            "model": config.model.class_path,
            "agent": config.agent.class_path,
            "environment": config.eval.env_id or config.env.id,
        },
        "inputs": inputs,
        "outputs": outputs,
        "outside": _outside(config),
        "config": plain_config(config),
    }


def _outside(config: Config) -> dict[str, Any]:
    wrappers = [spec for spec in wrapper_specs(config) if not spec.is_training_only]
    return {
        "wrappers": [{"name": spec.name, "args": dict(spec.args)} for spec in wrappers],
        "frame_stack": config.env.frame_stack,
    }


def _describe(name: str, space: Any) -> dict[str, Any]:
    shape = list(space.shape or ())
    dtype = "int64" if isinstance(space, spaces.Discrete) else np.dtype(space.dtype).name
    about: dict[str, Any] = {"name": name, "shape": shape, "dtype": dtype}
    if isinstance(space, spaces.Discrete):
        return {**about, "kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {**about, "kind": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.Box):
        return {**about, "kind": "box", "low": _bound(space.low), "high": _bound(space.high)}
    return {**about, "kind": "multi_binary"}


def _bound(values: Any) -> Any:
    """One number if all are the same, None for infinity, which JSON has no word for."""
    if values.size and (values == values.flat[0]).all():
        return values.flat[0].item() if np.isfinite(values.flat[0]) else None
    return np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()
