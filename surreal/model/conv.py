"""Convolutions from configuration: stages, presets, and the layers that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, pad

from surreal.model.activations import get_activation
from surreal.model.mlp import allocate


@dataclass(frozen=True)
class Convolution:
    """One convolution.

    Args:
        n_filters: channels of its output, >= 1; more fit more and compute longer.
        filter_size: height and width of the filters, each >= 1: one number for both, or the two.
        stride: pixels from one place of the filter to the next, each >= 1: one number, or two for height and width.
            More gives a smaller output.
        border: "valid": the filter stays inside the image; "same": zeros around it, so that the output has
            ceil(size / stride) pixels (where the zeros are uneven, the one more is at the bottom and the right).
        activation: afterwards; see `surreal.model.activations`.
        type: only "convolution".
    """

    n_filters: int
    filter_size: int | Sequence[int]
    stride: int | Sequence[int] = 1
    border: str = "valid"
    activation: str = "relu"
    type: str = "convolution"

    def __post_init__(self) -> None:
        if not _is_positive(self.n_filters):
            raise ValueError(f"n_filters of a convolution is {self.n_filters!r}; it must be an integer >= 1")
        for name in ("filter_size", "stride"):
            value = getattr(self, name)
            if isinstance(value, list):  # which could not be hashed
                object.__setattr__(self, name, tuple(value))
            if len(sizes := _pair(getattr(self, name))) != 2 or not all(map(_is_positive, sizes)):
                must = "it must be an integer >= 1, or a list of two: height and width"
                raise ValueError(f"{name} of a convolution is {value!r}; {must}")
        if self.border not in ("valid", "same"):
            raise ValueError(f"border of a convolution is {self.border!r}; it must be valid or same")
        if self.type != "convolution":
            raise ValueError(f"type of a convolution is {self.type!r}; it must be convolution")
        get_activation(self.activation)

    @property
    def filter_sizes(self) -> tuple[int, ...]:
        return _pair(self.filter_size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Height and width from one place of the filter to the next."""
        return _pair(self.stride)

    def output_size(self, size: int, axis: int) -> int:
        """Pixels of the output along axis 0 (height) or 1 (width) of `size` pixels; 0 where the filter does not fit."""
        if self.border == "same":
            return -(-size // self.strides[axis])
        return max((size - self.filter_sizes[axis]) // self.strides[axis] + 1, 0)

    def make_layer(self, channels: int, generator: torch.Generator | None) -> ConvLayer:
        """Build the layers for images of this many channels."""
        return ConvLayer(channels, self, generator)


@dataclass(frozen=True)
class ResidualStage:
    """A convolution of 3 x 3, a maximum over 3 x 3 pixels at every second one, and residual blocks.

    A block is relu, convolution, relu, convolution, added to what it began with (Espeholt et al. 2018 figure 3,
    arXiv:1802.01561).

    Args:
        n_filters: channels of all of its convolutions, >= 1; more fit more and compute longer.
        n_blocks: residual blocks, >= 0.
        activation: after the last of them; see `surreal.model.activations`.
        type: only "residual".
    """

    n_filters: int
    n_blocks: int = 2
    activation: str = "none"
    type: str = "residual"

    def __post_init__(self) -> None:
        if not _is_positive(self.n_filters) or type(self.n_blocks) is not int or self.n_blocks < 0:
            given = f"n_filters and n_blocks of a residual stage are {self.n_filters!r} and {self.n_blocks!r}"
            raise ValueError(f"{given}; they must be integers >= 1 and >= 0")
        if self.type != "residual":
            raise ValueError(f"type of a residual stage is {self.type!r}; it must be residual")
        get_activation(self.activation)

    def output_size(self, size: int, axis: int) -> int:
        """Pixels of the output along an axis of `size` pixels."""
        return -(-size // 2)

    def make_layer(self, channels: int, generator: torch.Generator | None) -> ResidualLayer:
        """Build the layers for images of this many channels."""
        return ResidualLayer(channels, self, generator)


class ConvLayer(nn.Conv2d):
    """A convolution and its activation.

    Args:
        generator: draws the initial values, U(-1/sqrt(inputs), 1/sqrt(inputs)); None uses torch's global one.
    """

    def __init__(self, channels: int, settings: Convolution, generator: torch.Generator | None = None) -> None:
        (height, width), (down, right) = settings.filter_sizes, settings.strides
        super().__init__(channels, settings.n_filters, (height, width), (down, right), device="meta")
        allocate(self)
        self._settings = settings
        self._activation = get_activation(settings.activation, in_place=True)
        bound = 1.0 / math.sqrt(channels * height * width)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """Compute [B, n_filters, height, width] from [B, channels, height, width] float32."""
        if self._settings.border == "same":
            images = _pad_same(images, self._settings)
        return self._activation(conv2d(images, self.weight, self.bias, self._settings.strides))


class ResidualLayer(nn.Module):
    """See `ResidualStage`."""

    def __init__(self, channels: int, settings: ResidualStage, generator: torch.Generator | None = None) -> None:
        super().__init__()
        plain = Convolution(settings.n_filters, 3, border="same", activation="none")
        inner = Convolution(settings.n_filters, 3, border="same", activation="relu")
        self.first = ConvLayer(channels, plain, generator)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(ConvLayer(settings.n_filters, part, generator) for part in (inner, plain)))
            for _ in range(settings.n_blocks)
        )
        self._activation = get_activation(settings.activation)

    def forward(self, images: Tensor) -> Tensor:
        """Compute [B, n_filters, ceil(height / 2), ceil(width / 2)] from [B, channels, height, width] float32."""
        images = max_pool2d(self.first(images), 3, 2, padding=1)
        for block in self.blocks:
            images = images + block(torch.relu(images))
        return self._activation(images)


def _pad_same(images: Tensor, convolution: Convolution) -> Tensor:
    (top, bottom), (left, right) = (_border(images.shape[2 + axis], convolution, axis) for axis in (0, 1))
    return pad(images, (left, right, top, bottom))


def _border(size: int, convolution: Convolution, axis: int) -> tuple[int, int]:
    covered = (convolution.output_size(size, axis) - 1) * convolution.strides[axis] + convolution.filter_sizes[axis]
    missing = max(covered - size, 0)
    return missing // 2, missing - missing // 2


def _is_positive(value: object) -> bool:
    return type(value) is int and value >= 1


def _pair(size: Any) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size, size)


#: One entry of a list.
ConvStage = Convolution | ResidualStage

#: Well-known lists: Mnih et al. 2015; Mnih et al. 2016 (arXiv:1602.01783); OpenAI's universe-starter-agent; the deep
#: one of Espeholt et al. 2018 (arXiv:1802.01561).
CONVOLUTIONS: Mapping[str, tuple[ConvStage, ...]] = {
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "a3c": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "universe": (Convolution(32, 3, 2, "same", "elu"),) * 4,
    "impala": (ResidualStage(16), ResidualStage(32), ResidualStage(32, activation="relu")),
}


def read_convolutions(convolutions: str | Sequence[ConvStage | Mapping[str, Any]]) -> tuple[ConvStage, ...]:
    """Read a preset's name, or a list of `{type: convolution, n_filters, filter_size, stride, border, activation}`.

    An entry may also be `{type: residual, n_filters, n_blocks, activation}`.

    Raises:
        ValueError: there is no such preset, the list is empty, or an entry is not possible.
    """
    if isinstance(convolutions, str):
        if convolutions not in CONVOLUTIONS:
            raise ValueError(f"convolutions is {convolutions!r}; use one of {', '.join(CONVOLUTIONS)}, or a list")
        return CONVOLUTIONS[convolutions]
    found = tuple(each if isinstance(each, Convolution | ResidualStage) else _read_stage(each) for each in convolutions)
    if not found:
        raise ValueError("convolutions is empty; name at least one")
    return found


def _read_stage(entry: object) -> ConvStage:
    if isinstance(entry, Mapping):
        if entry.get("type") == "residual":
            if {"n_filters"} <= entry.keys() <= {field.name for field in fields(ResidualStage)}:
                return ResidualStage(**entry)
            raise ValueError(f"a residual stage is {entry!r}; it has n_filters, and may have n_blocks and activation")
        if {"n_filters", "filter_size"} <= entry.keys() <= {field.name for field in fields(Convolution)}:
            return Convolution(**entry)
    problem = f"a convolution is {entry!r}"
    raise ValueError(f"{problem}; it has n_filters and filter_size, and may have stride, border, activation and type")


class ConvTorso(nn.Module):
    """Convolutions and residual stages, one after the other; the output is flattened.

    Args:
        num_channels: number of channels of the images.
        convolutions: see `read_convolutions`.
        generator: draws the initial values, torch's usual ones; None uses torch's global generator.
    """

    def __init__(
        self,
        num_channels: int,
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] = "nature",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.convolutions = read_convolutions(convolutions)
        channels = (num_channels, *(stage.n_filters for stage in self.convolutions))
        self.layers = nn.ModuleList(
            stage.make_layer(before, generator) for before, stage in zip(channels, self.convolutions, strict=False)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Compute [B, features] from [B, channels, height, width] float32."""
        for layer in self.layers:
            images = layer(images)
        return images.flatten(1)


def count_conv_features(convolutions: Sequence[ConvStage], height: int, width: int) -> int:
    """Count the flattened outputs of the convolutions; raises `ValueError` if images of this size are too small."""
    sizes = (height, width)
    for number, stage in enumerate(convolutions):
        before, sizes = sizes, (stage.output_size(sizes[0], 0), stage.output_size(sizes[1], 1))
        if 0 in sizes and isinstance(stage, Convolution):
            filter_height, filter_width = stage.filter_sizes
            raise ValueError(
                f"images of {height} x {width} are too small: convolution {number} has a filter of "
                f"{filter_height} x {filter_width}, and {before[0]} x {before[1]} pixels are left"
            )
    return convolutions[-1].n_filters * sizes[0] * sizes[1]
