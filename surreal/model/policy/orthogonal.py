"""Orthogonal initial values (Saxe et al. 2014, arXiv:1312.6120), with the gains that policy gradients like.

Hidden layers have sqrt(2), so that relu and tanh keep the scale of what they get. A policy's output has 0.01: it begins
nearly uniform, or with means near 0. A value's output has 1 (Andrychowicz et al. 2021, arXiv:2006.05990, section 3.2).
"""

from __future__ import annotations

import math

import torch
from torch import nn

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


def initialise_orthogonally(module: nn.Module, gain: float, generator: torch.Generator | None) -> None:
    """Draw all matrices and filters in a module anew, with this gain, and set all biases to 0.

    What is neither (a free standard deviation) stays as it is.
    """
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter.ndim > 1:
                nn.init.orthogonal_(parameter, gain, generator=generator)
            elif name.startswith("bias"):
                nn.init.zeros_(parameter)
