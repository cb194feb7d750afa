"""`Torso`: turns an environment's observations into the features that cores and heads read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surreal.base import tree
from surreal.base.ranges import PositiveInt, checked
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName
from surreal.model.conv import ConvStage, ConvTorso, count_conv_features
from surreal.model.mlp import MLP
from surreal.model.norms import NormKind

ImageAxes = Literal["auto", "channels_first", "channels_last"]
#: Channels of gray and of RGB images.
_COLORS = (1, 3)
#: Least height and width of a leaf that counts as an image next to a larger one.
_LEAST_PIXELS = 8


class Torso(nn.Module):
    """Images through convolutions, if there are any, all else unchanged, then dense layers over everything.

    Any leading axes will do: features of [B, *obs_shape] are [B, num_features], those of [T, B, *obs_shape] are
    [T, B, num_features].

    Args:
        obs_spec: kind of one observation. Leaves are concatenated with dict keys sorted and tuple items in place.
        convolutions: see `surreal.model.conv`; images go through them, each leaf through its own. A leaf of 2, 3 or 4
            axes is an image, see `image_layout`. Next to an image, a leaf that is too small for them, or less than 8
            pixels high or wide (a stack of one-hot actions), is flattened. None flattens images, too.
        image_axes: channels_first, channels_last, or auto, which tells from the shape.
        hiddens: units of the dense layers, each >= 1; without any, the features are unchanged.
        activation: after each dense layer.
        norm: normalizes the outputs of each dense layer before its activation; see `surreal.model.norms`.
        generator: draws the initial values; None uses torch's global one.

    Raises:
        ValueError: there are convolutions but no images, or images too small for them.
    """

    def __init__(
        self,
        obs_spec: ObsSpec,
        *,
        convolutions: Sequence[ConvStage] | None = None,
        image_axes: ImageAxes = "auto",
        hiddens: Sequence[int] = (),
        activation: ActivationName = "relu",
        norm: NormKind | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self._spec = obs_spec
        self._is_image = _find_images(obs_spec.leaves, convolutions, image_axes)
        if convolutions is not None and not any(self._is_image):
            described = obs_spec.to_json()["leaves"]
            raise ValueError(f"observations are not images [channels, height, width]: {described}")
        num_features = 0
        self._are_last: list[bool] = []  # whether an image leaf has its channels last
        self.images = nn.ModuleList()
        for leaf, is_image in zip(obs_spec.leaves, self._is_image, strict=True):
            if is_image and convolutions is not None:
                channels, height, width, is_last = image_layout(leaf.shape, image_axes)
                num_features += count_conv_features(convolutions, height, width)
                self.images.append(ConvTorso(channels, convolutions, generator))
                self._are_last.append(is_last)
            else:
                num_features += math.prod(leaf.shape)
        self.dense: MLP | None = None
        if hiddens:
            self.dense = MLP((num_features, *hiddens), activation, activation, generator=generator, norm=norm)
        self.num_features = hiddens[-1] if hiddens else num_features
        # The plain case has a short way: one array, no image.
        is_plain = obs_spec.is_array and not self._is_image[0]
        self._plain = (obs_spec.leaves[0].shape, self.dense) if is_plain else None

    def forward(self, obs: Obs) -> Tensor:
        """Compute [..., num_features] float32 from [..., *obs_shape] tensors, or nested dicts and tuples of them."""
        if self._plain is None:
            features, dense = self._concatenate(obs), self.dense
        else:
            shape, dense = self._plain
            features = read_leaf(obs, shape)
        return features if dense is None else dense.forward(features)

    def _concatenate(self, obs: Obs) -> Tensor:
        convolutions = zip(self.images, self._are_last, strict=True)
        parts = []
        for tensor, leaf, is_image in zip(tree.leaves(obs), self._spec.leaves, self._is_image, strict=True):
            if is_image:
                convolve, is_last = next(convolutions)
                features = convolve(read_images(tensor, leaf, is_last=is_last))
                leading = tensor.shape[: tensor.dim() - len(leaf.shape)]
                parts.append(features.reshape(*leading, features.shape[-1]))
            else:
                parts.append(read_leaf(tensor, leaf.shape))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _find_images(
    leaves: Sequence[ArraySpec], convolutions: Sequence[ConvStage] | None, image_axes: ImageAxes
) -> list[bool]:
    """Choose the leaves for convolutions: large ones that fit, else those that fit, else all with image axes."""
    if convolutions is None:
        return [False] * len(leaves)
    images = [image_layout(leaf.shape, image_axes) if len(leaf.shape) in (2, 3, 4) else None for leaf in leaves]
    for least in (_LEAST_PIXELS, 1):
        are_images = [
            image is not None and min(image.height, image.width) >= least and _fits(image, convolutions)
            for image in images
        ]
        if any(are_images):
            return are_images
    return [image is not None for image in images]


def _fits(image: ImageLayout, convolutions: Sequence[ConvStage]) -> bool:
    try:
        count_conv_features(convolutions, image.height, image.width)
    except ValueError:
        return False
    return True


@checked
def check_hiddens(hiddens: Sequence[PositiveInt]) -> tuple[int, ...]:
    """Read the units of dense layers; copies of earlier models call it."""
    return tuple(hiddens)


def read_leaf(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a leaf as float32, its own axes flattened into one; raises `ValueError` for another shape.

    Args:
        tensor: [..., *shape]; uint8 is scaled by 1/255 (images), other integers and booleans are taken as numbers.
        shape: shape of one; () is a scalar (Discrete), which is one feature.

    Returns:
        [..., features] float32
    """
    own = len(shape)
    check_shape(tensor, shape)
    if tensor.dtype is not torch.float32:
        tensor = _to_floats(tensor)
    if own == 1:
        return tensor
    return tensor.unsqueeze(-1) if own == 0 else tensor.flatten(tensor.dim() - own)


def read_images(tensor: Tensor, leaf: ArraySpec, *, is_last: bool = False) -> Tensor:
    """Return images as float32 [B, channels, height, width], from [..., *shape]; uint8 is scaled by 1/255.

    `is_last` tells whether the channels are the last axis of the shape.

    Raises:
        ValueError: the tensor has another shape.
    """
    check_shape(tensor, leaf.shape)
    # An update of 256 frames takes a CPU a quarter less where their channels are innermost.
    layout = torch.channels_last if tensor.is_cpu else torch.preserve_format
    return _to_floats(to_channels_first(tensor.reshape(-1, *leaf.shape), is_last), layout)


def check_shape(tensor: Tensor | NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse observations [..., *shape] of another shape."""
    if shape and tensor.shape[-len(shape) :] != shape:
        raise ValueError(f"observations are {list(tensor.shape)}, but one of them is {list(shape)}")


def _to_floats(tensor: Tensor, layout: torch.memory_format = torch.preserve_format) -> Tensor:
    floats = tensor.to(torch.float32, memory_format=layout)
    return floats.mul_(1.0 / 255.0) if tensor.dtype is torch.uint8 else floats


def flatten_obs(obs: Obs) -> Tensor:
    """Concatenate all leaves of a batch: dict keys sorted, tuple items in place.

    Args:
        obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.

    Returns:
        [B, features] float32; see `read_leaf`.
    """
    parts = [read_leaf(leaf, tuple(leaf.shape[1:])) for leaf in tree.leaves(obs)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class ImageLayout(NamedTuple):
    """Memory layout of the images in one leaf."""

    channels: int  #: of the whole stack
    height: int
    width: int
    is_last: bool  #: whether the channels are the last axis


def image_layout(shape: Sequence[int], axes: ImageAxes = "auto") -> ImageLayout:
    """Find the channels of an image; raises `ValueError` if the shape leaves auto in doubt.

    Args:
        shape: [height, width], [channels, height, width] or [height, width, channels]; the latter two may be stacked,
            in a further axis before these.
        axes: channels_first, channels_last, or auto: of three axes two are equal, or the channels are 1, 3, or at most
            half of each other axis.
    """
    if len(shape) == 2:
        return ImageLayout(1, shape[0], shape[1], False)
    stack, (first, middle, last) = (shape[0] if len(shape) == 4 else 1), shape[-3:]
    if axes == "channels_last" or (axes == "auto" and _are_last(first, middle, last)):
        return ImageLayout(stack * last, first, middle, True)
    return ImageLayout(stack * first, middle, last, False)


@checked
def check_image_axes(image_axes: ImageAxes) -> ImageAxes:
    """Check a setting; copies of earlier models call it."""
    return image_axes


def to_channels_first(images: Tensor, is_last: bool) -> Tensor:
    """Return [B, channels, height, width] from images [B, ...] of any layout, stacks merged; a view where possible."""
    if images.dim() == 3:
        return images.unsqueeze(1)
    if is_last:
        images = images.movedim(-1, -3)
    return images if images.dim() == 4 else images.flatten(1, 2)


def _are_last(first: int, middle: int, last: int) -> bool:
    if middle == last:  # [channels, n, n]
        return False
    if first == middle:  # [n, n, channels]
        return True
    for channels, other, is_last in ((first, last, False), (last, first, True)):
        if channels in _COLORS or 2 * channels <= min(other, middle):
            return is_last
    raise ValueError(
        f"observations of shape {[first, middle, last]} may be images [channels, height, width], [height, width, "
        "channels], or none; set image_axes to channels_first or channels_last, or leave convolutions out"
    )
