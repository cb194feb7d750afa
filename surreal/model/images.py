"""Images in observations: where their channels are, and how they become what convolutions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from surreal.base.ranges import checked

ImageAxes = Literal["auto", "channels_first", "channels_last"]
#: Channels of gray and of RGB images.
_COLORS = (1, 3)


class ImageLayout(NamedTuple):
    """Memory layout of the images in one leaf."""

    channels: int  #: of the whole stack
    height: int
    width: int
    is_last: bool  #: whether the channels are the last axis


def image_layout(shape: Sequence[int], axes: str = "auto") -> ImageLayout:
    """Find the channels of an image.

    Args:
        shape: [height, width], [channels, height, width] or [height, width, channels]; the latter two may be stacked,
            in a further axis before these.
        axes: channels_first, channels_last, or auto: of three axes two are equal, or the channels are 1, 3, or at most
            half of each other axis.

    Raises:
        ValueError: the shape leaves auto in doubt.
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
