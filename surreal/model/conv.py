"""`ConvTorso`: convolutions over images, from a list as configurations have it, or from one of the presets by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from surreal.model.activations import get_activation
from surreal.model.allocate import allocate


@dataclass(frozen=True)
class Convolution:
    """One convolution.

    Args:
        n_filters: channels of its output, >= 1; more fit more and compute longer.
        filter_size: height and width of the filters, each >= 1: one number for both, or the two.
        stride: pixels from one place of the filter to the next, >= 1; more gives a smaller output.
        border: "valid": the filter stays inside the image; "same": zeros around it, so that the output has
            ceil(size / stride) pixels (where the zeros are uneven, the one more is at the bottom and the right).
        activation: afterwards; see `surreal.model.activations`.
        type: only "convolution".
    """

    n_filters: int
    filter_size: int | Sequence[int]
    stride: int = 1
    border: str = "valid"
    activation: str = "relu"
    type: str = "convolution"

    def __post_init__(self) -> None:
        for name in ("n_filters", "stride"):
            if not _is_positive(value := getattr(self, name)):
                raise ValueError(f"{name} of a convolution is {value!r}; it must be an integer >= 1")
        if isinstance(self.filter_size, list):  # which could not be hashed
            object.__setattr__(self, "filter_size", tuple(self.filter_size))
        if len(self.filter_sizes) != 2 or not all(map(_is_positive, self.filter_sizes)):
            must = "it must be an integer >= 1, or a list of two: height and width"
            raise ValueError(f"filter_size of a convolution is {self.filter_size!r}; {must}")
        if self.border not in ("valid", "same"):
            raise ValueError(f"border of a convolution is {self.border!r}; it must be valid or same")
        if self.type != "convolution":
            raise ValueError(f"type of a convolution is {self.type!r}; it must be convolution")
        get_activation(self.activation)

    @property
    def filter_sizes(self) -> tuple[int, ...]:
        """Height and width of the filters."""
        size: Any = self.filter_size
        return size if isinstance(size, tuple) else (size, size)

    def output_size(self, size: int, axis: int) -> int:
        """Pixels of the output along axis 0 (height) or 1 (width) of `size` pixels; 0 where the filter does not fit."""
        if self.border == "same":
            return -(-size // self.stride)
        return max((size - self.filter_sizes[axis]) // self.stride + 1, 0)


def _is_positive(value: object) -> bool:
    return type(value) is int and value >= 1


#: Well-known lists: Mnih et al. 2015; Mnih et al. 2016 (arXiv:1602.01783); OpenAI's universe-starter-agent.
CONVOLUTIONS: Mapping[str, tuple[Convolution, ...]] = {
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "a3c": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "universe": (Convolution(32, 3, 2, "same", "elu"),) * 4,
}


def read_convolutions(convolutions: str | Sequence[Convolution | Mapping[str, Any]]) -> tuple[Convolution, ...]:
    """Read a preset's name, or a list of `{type: convolution, n_filters, filter_size, stride, border, activation}`.

    Raises:
        ValueError: there is no such preset, the list is empty, or an entry is not possible.
    """
    if isinstance(convolutions, str):
        if convolutions not in CONVOLUTIONS:
            raise ValueError(f"convolutions is {convolutions!r}; use one of {', '.join(CONVOLUTIONS)}, or a list")
        return CONVOLUTIONS[convolutions]
    known = {field.name for field in fields(Convolution)}
    found = []
    for entry in convolutions:
        if not isinstance(entry, Convolution):
            if not isinstance(entry, Mapping) or not {"n_filters", "filter_size"} <= entry.keys() <= known:
                raise ValueError(
                    f"a convolution is {entry!r}; it has n_filters and filter_size, and may have "
                    "stride, border, activation and type"
                )
            entry = Convolution(**entry)
        found.append(entry)
    if not found:
        raise ValueError("convolutions is empty; name at least one")
    return tuple(found)


class ConvTorso(nn.Module):
    """Convolutions, each followed by its activation; the output is flattened.

    Args:
        num_channels: of the images.
        convolutions: see `read_convolutions`.
        generator: draws the initial values, torch's usual ones; None uses torch's global generator.
    """

    def __init__(
        self,
        num_channels: int,
        convolutions: str | Sequence[Convolution | Mapping[str, Any]] = "nature",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.convolutions = read_convolutions(convolutions)
        channels = (num_channels, *(convolution.n_filters for convolution in self.convolutions))
        self.layers = nn.ModuleList(
            _make_layer(before, after, convolution, generator)
            for (before, after), convolution in zip(pairwise(channels), self.convolutions, strict=True)
        )
        self._activations = [get_activation(convolution.activation) for convolution in self.convolutions]

    def forward(self, images: Tensor) -> Tensor:
        """Compute [B, features] from [B, channels, height, width] float32."""
        layer: Any
        for layer, convolution, activation in zip(self.layers, self.convolutions, self._activations, strict=True):
            if convolution.border == "same":
                images = _pad_same(images, convolution)
            images = activation(conv2d(images, layer.weight, layer.bias, convolution.stride))
        return images.flatten(1)


def count_conv_features(convolutions: Sequence[Convolution], height: int, width: int) -> int:
    """Count what the convolutions give for images of this size, flattened.

    Raises:
        ValueError: the images are too small.
    """
    sizes = (height, width)
    for number, convolution in enumerate(convolutions):
        before, sizes = sizes, (convolution.output_size(sizes[0], 0), convolution.output_size(sizes[1], 1))
        if 0 in sizes:
            filter_height, filter_width = convolution.filter_sizes
            raise ValueError(
                f"images of {height} x {width} are too small: convolution {number} has a filter of "
                f"{filter_height} x {filter_width}, and {before[0]} x {before[1]} pixels are left"
            )
    return convolutions[-1].n_filters * sizes[0] * sizes[1]


def _pad_same(images: Tensor, convolution: Convolution) -> Tensor:
    (top, bottom), (left, right) = (_border(images.shape[2 + axis], convolution, axis) for axis in (0, 1))
    return pad(images, (left, right, top, bottom))


def _border(size: int, convolution: Convolution, axis: int) -> tuple[int, int]:
    covered = (convolution.output_size(size, axis) - 1) * convolution.stride + convolution.filter_sizes[axis]
    missing = max(covered - size, 0)
    return missing // 2, missing - missing // 2


def _make_layer(before: int, after: int, convolution: Convolution, generator: torch.Generator | None) -> nn.Conv2d:
    height, width = convolution.filter_sizes
    layer = allocate(nn.Conv2d(before, after, (height, width), convolution.stride, device="meta"))
    bound = 1.0 / math.sqrt(before * height * width)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
