"""Write a policy's module as TorchScript or ONNX."""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surreal.agent.exported import MASK, METADATA
from surreal.base.errors import ExportError
from surreal.base.system.program import install_command
from surreal.plugins.export.module import PolicyModule

_NEEDED = ("onnx", "onnxscript", "onnxruntime")


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
    """Trace a policy with the inputs of two rows; `about` is the file's metadata.

    Raises:
        ExportError: its network cannot be traced.
    """
    with warnings.catch_warnings(), torch.no_grad():
        # TorchScript is deprecated, and a trace warns about each comparison of shapes.
        warnings.simplefilter("ignore")
        try:
            traced: Any = torch.jit.trace(module, (example,), strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        except Exception as error:
            name = type(module.model).__qualname__
            raise ExportError(f"{name} cannot be traced for TorchScript: {_first_line(error)}") from error
        if module.mask_width:
            wrapped = _WithoutMask(traced, MASK, module.mask_width, module.obs_names[0])
            traced = torch.jit.script(wrapped)
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer, _extra_files={f"{METADATA}.json": about})
    return buffer.getvalue()


def _first_line(error: BaseException) -> str:
    """Return an error's first line with text, for a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def require_onnx() -> None:
    """Check that the packages that write and run ONNX are installed.

    Raises:
        ExportError: a package is missing.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(f"ONNX needs {' and '.join(missing)}; run: {install_command('onnx')}")


def to_onnx(module: PolicyModule, example: dict[str, Tensor], about: str) -> bytes:
    """Translate a policy with the inputs of two rows or more; `about` is the file's metadata.

    Raises:
        ExportError: its network cannot be translated.
    """
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
