"""Writes a policy as ONNX, for onnxruntime and whatever else reads it; needs the extra `onnx`."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal.agent.exported import MASK, METADATA
from surreal.base.errors import ExportError
from surreal.base.system.program import install_command
from surreal.plugins.export.module import PolicyModule
from surreal.plugins.export.torchscript import first_line

_NEEDED = ("onnx", "onnxscript", "onnxruntime")


def require_onnx() -> None:
    """Check that what writes and checks ONNX is installed.

    Raises:
        ExportError: a package is missing.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(f"ONNX needs {' and '.join(missing)}; run: {install_command('onnx')}")


def to_onnx(module: PolicyModule, example: dict[str, Tensor], about: str) -> bytes:
    """Translate a policy.

    Args:
        module: the policy.
        example: its inputs, for two rows or more.
        about: the file's metadata.

    Raises:
        ExportError: its network cannot be translated.
    """
    batch = torch.export.Dim("batch")
    exporters = logging.getLogger("torch.onnx")
    level = exporters.level
    exporters.setLevel(logging.ERROR)  # it tells of packages that we have no use for
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
            f"{type(module.model).__qualname__} cannot be translated to ONNX: {first_line(cause)}"
        ) from error
    finally:
        exporters.setLevel(level)
    proto = program.model_proto
    proto.metadata_props.add(key=METADATA, value=about)
    if module.mask_width:
        _make_optional(proto, MASK, np.ones((1, module.mask_width), np.bool_))
    data: bytes = proto.SerializeToString()
    return data


def _make_optional(proto: Any, name: str, default: np.ndarray[Any, Any]) -> None:
    """Give an input a value for when it is left out: one row, which is taken for all rows of a batch."""
    from onnx import numpy_helper

    proto.graph.initializer.append(numpy_helper.from_array(default, name))
    shape = next(each for each in proto.graph.input if each.name == name).type.tensor_type.shape
    shape.dim[0].dim_param = f"{name}_rows"
