"""Where the channels of an image are, and that a network computes the same from both layouts."""

from __future__ import annotations

import pytest
import torch

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.model.conv import read_convolutions
from surreal.model.torso import Torso, image_layout, to_channels_first

CONVOLUTIONS = ({"type": "convolution", "n_filters": 4, "filter_size": [3, 3], "stride": [2, 1], "border": "same"},)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((42, 42), (1, 42, 42, False)),
        ((42, 42, 3), (3, 42, 42, True)),
        ((7, 7, 3), (3, 7, 7, True)),
        ((8, 8, 119), (119, 8, 8, True)),
        ((4, 84, 84), (4, 84, 84, False)),
        ((16, 5, 5), (16, 5, 5, False)),
        ((210, 160, 3), (3, 210, 160, True)),
        ((3, 210, 160), (3, 210, 160, False)),
        ((60, 80, 12), (12, 60, 80, True)),
        ((4, 42, 42, 3), (12, 42, 42, True)),
        ((4, 3, 60, 80), (12, 60, 80, False)),
    ],
)
def test_the_axis_of_the_channels_is_found(shape: tuple[int, ...], layout: tuple[object, ...]) -> None:
    assert image_layout(shape) == layout


@pytest.mark.parametrize("shape", [(42, 3, 42), (16, 12, 10), (60, 5, 80)])
def test_a_shape_in_doubt_is_refused_with_the_setting_that_decides(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="set image_axes to channels_first or channels_last"):
        image_layout(shape)
    assert image_layout(shape, "channels_first") == (shape[0], shape[1], shape[2], False)
    assert image_layout(shape, "channels_last") == (shape[2], shape[0], shape[1], True)


@pytest.mark.parametrize("stack", [(), (2,)])
def test_a_network_computes_the_same_from_both_layouts(stack: tuple[int, ...]) -> None:
    first = torch.randint(0, 256, (5, *stack, 3, 9, 9), dtype=torch.uint8)
    last = first.movedim(-3, -1).contiguous()
    outputs = []
    for images in (first, last):
        spec = ObsSpec((ArraySpec("", tuple(images.shape[1:]), images.numpy().dtype),))
        generator = torch.Generator().manual_seed(0)
        torso = Torso(spec, convolutions=read_convolutions(CONVOLUTIONS), hiddens=(6,), generator=generator)
        outputs.append(torso(images))
        assert torch.equal(torso(images[None])[0], outputs[-1])
    torch.testing.assert_close(outputs[0], outputs[1])


def test_stacks_are_merged_image_by_image() -> None:
    images = torch.arange(2 * 4 * 4 * 3).reshape(1, 2, 4, 4, 3)
    merged = to_channels_first(images, is_last=True)
    assert merged.shape == (1, 6, 4, 4)
    assert torch.equal(merged[0, 3], images[0, 1, :, :, 0])
