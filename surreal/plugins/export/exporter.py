"""Exports a policy as TorchScript or ONNX, after comparing the file with the policy: `surreal export`.

The file carries one JSON text, its metadata:

format_version  1
format          torchscript or onnx
surreal, torch  versions that wrote it
policy          version of the parameters, classes of model and agent, environment
inputs          name, shape without the batch axis, dtype, kind and bounds, is_optional
outputs         the same; for discrete actions `n` or `nvec`, and `start`, the first action
outside         wrappers and stacked frames of the environment, which the file does not apply
config          the run's configuration, without addresses
"""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal import __version__
from surreal.agent.exported import FORMAT_VERSION, FORMATS, MASK, METADATA, NEXT_STATE, STATE, ExportedFile
from surreal.api import Policy, load
from surreal.base import tree
from surreal.base.errors import ConfigError, ExportError
from surreal.base.specs import spaces_of
from surreal.base.system.files import write_whole
from surreal.base.system.program import install_command
from surreal.plugins.export.module import PolicyModule, check_alike
from surreal.run.build.environments import wrapper_specs
from surreal.run.process.registry import plain_config

#: Packages that write and run ONNX.
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    file_format: str  #: torchscript or onnx
    size: int  #: bytes
    metadata: dict[str, Any]
    steps: int  #: number of steps in which it acted like the policy


def export_policy(
    source: str | os.PathLike[str], path: Path | None = None, *, file_format: str | None = None, trust: bool = False
) -> Exported:
    """Export a policy with its filters and its mapping to the environment's actions.

    Args:
        source: `best.safetensors`, a learner's checkpoint, or a run's folder, as in `surreal.load`.
        path: path of the file to write; None: next to the policy, under its name.
        file_format: "torchscript" or "onnx"; None: from the path's ending, else torchscript.
        trust: see `surreal.load`.

    Raises:
        CheckpointError: there is no such policy, or it is damaged.
        ConfigError: format and path do not fit, or the policy names code outside of Surreal and is not trusted.
        ExportError: the policy cannot be exported, or the file would act differently.
        OSError: the file cannot be written.
    """
    chosen = _choose_format(path, file_format)
    missing = [name for name in _NEEDED if chosen == "onnx" and importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(f"ONNX needs {' and '.join(missing)}; run: {install_command('onnx')}")
    policy = load(source, trust=trust)
    if policy.saved.exported is not None:
        raise ExportError(f"{source} is already an exported policy; export its checkpoint instead")
    if policy.obs_spec is None:
        raise ExportError("observations are raw, so their shape and dtype are unknown; a file needs both")
    ending = next(each for each, name in FORMATS.items() if name == chosen)
    place = policy.saved.path  # a policy from a URL goes into the current folder
    folder = Path() if "://" in place else Path(place).parent
    target = path or folder / Path(place.rpartition("/")[2]).with_suffix(ending)
    module = PolicyModule(policy.agent, policy.obs_spec, policy.action_space).cpu().eval().requires_grad_(False)
    metadata = describe_export(policy, module, chosen)
    write = to_onnx if chosen == "onnx" else to_torchscript
    data = write(module, module.example(), json.dumps(metadata))
    with tempfile.TemporaryDirectory() as temporary:
        trial = Path(temporary) / f"policy{ending}"
        trial.write_bytes(data)
        steps = check_alike(policy, module, ExportedFile(trial))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, data)
    return Exported(target, chosen, len(data), metadata, steps)


def _choose_format(path: Path | None, asked: str | None) -> str:
    if asked is not None and asked not in FORMATS.values():
        raise ConfigError(f"--format is {asked!r}; it must be {' or '.join(FORMATS.values())}", key="--format")
    if path is None:
        return asked or "torchscript"
    found = FORMATS.get(path.suffix)
    if found is None or (asked is not None and asked != found):
        endings = ", ".join(f"{ending} for {name}" for ending, name in FORMATS.items())
        raise ConfigError(f"{path} does not have its format's ending: {endings}", key="-o")
    return found


def describe_export(policy: Policy, module: PolicyModule, file_format: str) -> dict[str, Any]:
    """Build a file's metadata."""
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
    specs = [spec for spec in wrapper_specs(config) if not spec.is_training_only]
    wrappers = [{"name": spec.name, "args": dict(spec.args)} for spec in specs]
    classes = {"model": config.model.class_path, "agent": config.agent.class_path}
    return {
        "format_version": FORMAT_VERSION,
        "format": file_format,
        "surreal": __version__,
        "torch": torch.__version__,
        "policy": {"version": policy.version, **classes, "environment": config.eval.env_id or config.env.id},
        "inputs": inputs,
        "outputs": outputs,
        "outside": {"wrappers": wrappers, "frame_stack": config.env.frame_stack},
        "config": plain_config(config),
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
    """Return one number if all are the same; None: infinity, which JSON cannot express."""
    if values.size and (values == values.flat[0]).all():
        return values.flat[0].item() if np.isfinite(values.flat[0]) else None
    return np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()


class _WithoutMask(nn.Module):
    """Lets callers leave out the mask, which a trace alone would require. It is compiled, so it is in TorchScript."""

    def __init__(self, core: Any, mask: str, width: int, obs_name: str) -> None:
        super().__init__()
        self.core = core
        self.mask = mask
        self.width = width
        self.obs_name = obs_name

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.mask not in inputs:
            inputs = inputs.copy()
            count = inputs[self.obs_name].shape[0]
            inputs[self.mask] = torch.ones([count, self.width], dtype=torch.bool)
        return self.core(inputs)  # type: ignore[no-any-return]


def to_torchscript(module: PolicyModule, example: dict[str, Tensor], about: str) -> bytes:
    """Trace a policy with the inputs of two rows; `about` is the file's metadata."""
    with warnings.catch_warnings(), torch.no_grad():
        # TorchScript is deprecated, and a trace warns about each comparison of shapes.
        warnings.simplefilter("ignore")
        try:
            traced: Any = torch.jit.trace(module, (example,), strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        except Exception as error:
            name = type(module.model).__qualname__
            raise ExportError(f"{name} cannot be traced for TorchScript: {_first_line(error)}") from error
        if module.mask_width:
            traced = torch.jit.script(_WithoutMask(traced, MASK, module.mask_width, module.obs_names[0]))
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer, _extra_files={f"{METADATA}.json": about})
    return buffer.getvalue()


def _first_line(error: BaseException) -> str:
    """Return an error's first line with text, for a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def to_onnx(module: PolicyModule, example: dict[str, Tensor], about: str) -> bytes:
    """Translate a policy with the inputs of two rows or more; `about` is the file's metadata."""
    batch = torch.export.Dim("batch")
    exporters = logging.getLogger("torch.onnx")
    level = exporters.level
    exporters.setLevel(logging.ERROR)  # it warns about packages that are not needed here
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                module,
                kwargs={"inputs": example},
                dynamo=True,
                dynamic_shapes={"inputs": {name: {0: batch} for name in example}},
                input_names=module.input_names,
                output_names=module.output_names,
                verbose=False,
            )
    except Exception as error:
        cause = error.__cause__ or error
        raise ExportError(
            f"{type(module.model).__qualname__} cannot be translated to ONNX: {_first_line(cause)}"
        ) from error
    finally:
        exporters.setLevel(level)
    proto = program.model_proto
    proto.metadata_props.add(key=METADATA, value=about)
    if module.mask_width:
        from onnx import numpy_helper

        # Its default is one row, which applies to all rows of a batch.
        proto.graph.initializer.append(numpy_helper.from_array(np.ones((1, module.mask_width), np.bool_), MASK))
        shape = next(each for each in proto.graph.input if each.name == MASK).type.tensor_type.shape
        shape.dim[0].dim_param = f"{MASK}_rows"
    data: bytes = proto.SerializeToString()
    return data
