"""`ConvTorso`: convolutions over images, from a list as configurations have it, or from one of the presets by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from surreal.model.layers.conv_layers import Convolution, ResidualStage

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
    found = tuple(
        entry if isinstance(entry, Convolution | ResidualStage) else _read_stage(entry) for entry in convolutions
    )
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
    raise ValueError(
        f"a convolution is {entry!r}; it has n_filters and filter_size, and may have "
        "stride, border, activation and type"
    )


class ConvTorso(nn.Module):
    """Convolutions and residual stages, one after the other; the output is flattened.

    Args:
        num_channels: of the images.
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
    """Count what the convolutions give for images of this size, flattened.

    Raises:
        ValueError: the images are too small.
    """
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
