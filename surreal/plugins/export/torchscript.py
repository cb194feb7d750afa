"""Writes a policy as TorchScript: one file that `torch.jit.load` runs in Python or C++, without any code of ours."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from surreal.agent.exported import MASK, METADATA
from surreal.base.errors import ExportError
from surreal.plugins.export.module import PolicyModule


class _WithoutMask(nn.Module):
    """Lets callers leave the mask out: a trace alone would ask for it. Compiled, so it is written in TorchScript."""

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
    """Trace a policy.

    Args:
        module: the policy.
        example: its inputs, for two rows.
        about: the file's metadata.

    Raises:
        ExportError: its network cannot be traced.
    """
    with warnings.catch_warnings(), torch.no_grad():
        # TorchScript is deprecated; and a trace tells of each comparison of shapes.
        warnings.simplefilter("ignore")
        try:
            traced: Any = torch.jit.trace(module, (example,), strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        except Exception as error:
            name = type(module.model).__qualname__
            raise ExportError(f"{name} cannot be traced for TorchScript: {first_line(error)}") from error
        if module.mask_width:
            wrapped = _WithoutMask(traced, MASK, module.mask_width, module.obs_names[0])
            traced = torch.jit.script(wrapped)
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer, _extra_files={f"{METADATA}.json": about})
    return buffer.getvalue()


def first_line(error: BaseException) -> str:
    """The first line of an error that says something, for a message of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
