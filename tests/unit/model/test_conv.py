"""Convolutions: shapes, borders, values against torch's own layers, and when the parameters are made."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from surreal.base.errors import ContractError
from surreal.base.specs import ObsSpec
from surreal.model import CONVOLUTIONS, ConvQFunction, ConvTorso
from surreal.model.conv import Convolution, ResidualLayer, ResidualStage, count_conv_features, read_convolutions

STACK = ObsSpec.from_obs(np.zeros((4, 84, 84), np.uint8))
SMALL: list[dict[str, Any]] = [
    {"type": "convolution", "n_filters": 4, "filter_size": 3, "stride": 2, "border": "same", "activation": "elu"},
    {"n_filters": 6, "filter_size": 2},
]


def frames(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "shapes", "features"),
    [
        ("nature", [[32, 4, 8, 8], [64, 32, 4, 4], [64, 64, 3, 3]], 64 * 7 * 7),
        ("a3c", [[16, 4, 8, 8], [32, 16, 4, 4]], 32 * 9 * 9),
        ("universe", [[32, 4, 3, 3], *[[32, 32, 3, 3]] * 3], 32 * 6 * 6),
    ],
)
def test_presets_have_the_published_shapes(name: str, shapes: list[list[int]], features: int) -> None:
    torso = ConvTorso(4, name)
    assert [list(layer.weight.shape) for layer in torso.layers] == shapes
    assert torso(torch.zeros(2, 4, 84, 84)).shape == (2, features)
    assert count_conv_features(CONVOLUTIONS[name], 84, 84) == features


def test_nature_computes_what_torch_layers_compute() -> None:
    model = ConvQFunction([16], action_space=3, obs_spec=STACK, seed=1)
    reference = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 16), nn.ReLU(), nn.Linear(16, 3),
    )  # fmt: skip
    reference.load_state_dict(dict(zip(reference.state_dict(), model.tensors().values(), strict=True)))
    obs = frames(5, 4, 84, 84)
    torch.testing.assert_close(model(obs), reference(obs.float() / 255))


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize(("filter_size", "stride"), [(3, 1), (3, 2), (4, 2), (2, 3), (1, 2)])
def test_same_border_gives_one_place_for_each_stride(size: int, filter_size: int, stride: int) -> None:
    torso = ConvTorso(2, [Convolution(3, filter_size, stride, "same", "none")])
    images = torch.randn(2, 2, size, size + 1)
    height, width = -(-size // stride), -(-(size + 1) // stride)
    found = torso(images).reshape(2, 3, height, width)
    # By definition: zeros around the image, and the filter at every stride-th place of it.
    top = max((height - 1) * stride + filter_size - size, 0) // 2
    left = max((width - 1) * stride + filter_size - size - 1, 0) // 2
    padded = F.pad(images, (left, filter_size, top, filter_size))
    weight, bias = torso.layers[0].weight, torso.layers[0].bias
    for y in range(height):
        for x in range(width):
            patch = padded[:, :, y * stride : y * stride + filter_size, x * stride : x * stride + filter_size]
            naive = torch.einsum("bcij,fcij->bf", patch, weight) + bias
            torch.testing.assert_close(found[:, :, y, x], naive)


@pytest.mark.parametrize("border", ["valid", "same"])
def test_filters_may_be_given_as_height_and_width(border: str) -> None:
    square, same = (read_convolutions([{"n_filters": 2, "filter_size": size}]) for size in (3, [3, 3]))
    assert [each.filter_sizes for each in (*square, *same)] == [(3, 3), (3, 3)]
    wide = read_convolutions([{"n_filters": 2, "filter_size": [1, 4], "stride": 2, "border": border}])
    assert hash(wide) == hash(read_convolutions(list(wide)))
    torso = ConvTorso(3, wide)
    assert torso.layers[0].weight.shape == (2, 3, 1, 4)
    images = torch.randn(2, 3, 6, 9)
    padded = images if border == "valid" else F.pad(images, (1, 2, 0, 0))  # a width of ceil(9 / 2)
    expected = F.relu(F.conv2d(padded, torso.layers[0].weight, torso.layers[0].bias, 2)).flatten(1)
    torch.testing.assert_close(torso(images), expected)
    assert count_conv_features(wide, 6, 9) == expected.shape[1]


def test_first_batch_makes_the_parameters_and_trains_them() -> None:
    model = ConvQFunction([8], action_space=2, convolutions=SMALL)
    assert not model.is_materialized
    with torch.inference_mode():
        assert model(frames(3, 2, 9, 7)).shape == (3, 2)
    assert {name: entry["shape"] for name, entry in model.parameter_contract().items()} == {
        "torso.images.0.layers.0.weight": [4, 2, 3, 3],
        "torso.images.0.layers.0.bias": [4],
        "torso.images.0.layers.1.weight": [6, 4, 2, 2],
        "torso.images.0.layers.1.bias": [6],
        "torso.dense.layers.0.weight": [8, 6 * 4 * 3],
        "torso.dense.layers.0.bias": [8],
        "q.output.weight": [2, 8],
        "q.output.bias": [2],
    }
    model(frames(3, 2, 9, 7)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_loaded_parameters_make_the_parameters() -> None:
    theirs = ConvQFunction([8], action_space=2, convolutions="a3c", obs_spec=STACK)
    ours = ConvQFunction([8], action_space=2, convolutions="a3c")
    ours.load_tensors(theirs.tensors(), version=3, header=theirs.header())
    assert ours.version == 3
    obs = frames(2, 4, 84, 84)
    assert torch.equal(ours(obs), theirs(obs))
    other = ConvQFunction([8], action_space=2, convolutions="nature")
    with pytest.raises(ContractError, match=r"torso\.images\.0\.layers\.0"):
        other.load_tensors(theirs.tensors(), header=theirs.header())
    with pytest.raises(ContractError, match="not images"):
        other.load_tensors(theirs.tensors(), header={"obs": ObsSpec.from_obs(np.zeros(4)).to_json()})
    assert not other.is_materialized


def test_same_seed_gives_the_same_parameters_and_copies_agree() -> None:
    first, second = (ConvQFunction([8], action_space=2, obs_spec=STACK, seed=5) for _ in range(2))
    obs = frames(2, 4, 84, 84)
    assert torch.equal(first(obs), second(obs))
    assert torch.equal(copy.deepcopy(first)(obs), first(obs))
    assert not torch.equal(ConvQFunction([8], action_space=2, obs_spec=STACK, seed=6)(obs), first(obs))


def test_single_gray_frames_are_one_channel() -> None:
    model = ConvQFunction([8], action_space=2, convolutions=SMALL, obs_spec=ObsSpec.from_obs(np.zeros((9, 9))))
    obs = frames(3, 9, 9)
    channel = ConvQFunction([8], action_space=2, convolutions=SMALL, obs_spec=ObsSpec.from_obs(np.zeros((1, 9, 9))))
    channel.load_tensors(model.tensors())
    assert torch.equal(model(obs), channel(obs[:, None]))


def test_dueling_splits_value_and_advantage() -> None:
    model = ConvQFunction([8], action_space=3, convolutions=SMALL, dueling=True)
    obs = frames(4, 1, 9, 9)
    q = model(obs)
    output = model.q.output(model.torso(obs))
    torch.testing.assert_close(q.mean(dim=1), output[:, 0])
    torch.testing.assert_close(q - q.mean(dim=1, keepdim=True), output[:, 1:] - output[:, 1:].mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("convolutions", "message"),
    [
        ("natur", "use one of nature, a3c, universe"),
        ([], "empty"),
        ([{"n_filters": 4}], "has n_filters and filter_size"),
        ([{"n_filters": 4, "filter_size": 3, "strid": 2}], "may have stride"),
        ([{"n_filters": 0, "filter_size": 3}], "n_filters of a convolution is 0"),
        ([{"n_filters": 4, "filter_size": [3]}], r"filter_size of a convolution is \[3\]"),
        ([{"n_filters": 4, "filter_size": [3, 0]}], "height and width"),
        ([{"n_filters": 4, "filter_size": [3, 1.5]}], "height and width"),
        ([{"n_filters": 4, "filter_size": "3x3"}], "height and width"),
        ([{"n_filters": 4, "filter_size": 1.5}], "height and width"),
        ([{"n_filters": 4, "filter_size": 3, "border": "full"}], "valid or same"),
        ([{"n_filters": 4, "filter_size": 3, "type": "pool"}], "must be convolution"),
        ([{"n_filters": 4, "filter_size": 3, "activation": "rely"}], "activation 'rely' is unknown"),
    ],
)
def test_lists_that_make_no_sense_are_refused(convolutions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_convolutions(convolutions)


def test_observations_that_are_no_images_are_refused() -> None:
    model = ConvQFunction(action_space=2)
    for obs_spec in (ObsSpec.from_obs(np.zeros(4)), ObsSpec.from_obs({"a": np.zeros(4), "b": 1})):
        with pytest.raises(ValueError, match="not images"):
            model.materialize(obs_spec)
    with pytest.raises(ValueError, match="not images"):
        model(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="20 x 20 are too small: convolution 2"):
        model(torch.zeros(2, 4, 20, 20))


def test_residual_blocks_add_to_what_they_begin_with() -> None:
    layer = ResidualLayer(2, ResidualStage(3, n_blocks=1, activation="relu"), torch.Generator().manual_seed(0))
    images = torch.randn(2, 2, 7, 6)
    begin = F.max_pool2d(F.conv2d(images, layer.first.weight, layer.first.bias, padding=1), 3, 2, 1)
    one, two = layer.blocks[0]
    inner = F.relu(F.conv2d(F.relu(begin), one.weight, one.bias, padding=1))
    expected = F.relu(begin + F.conv2d(inner, two.weight, two.bias, padding=1))
    torch.testing.assert_close(layer(images), expected)
    assert expected.shape == (2, 3, 4, 3)


def test_the_residual_preset_has_fifteen_convolutions() -> None:
    torso = ConvTorso(4, "impala")
    shapes = [list(parameter.shape) for name, parameter in torso.named_parameters() if name.endswith("weight")]
    assert [shape[0] for shape in shapes] == [16] * 5 + [32] * 10
    assert torso(torch.zeros(2, 4, 84, 84)).shape == (2, count_conv_features(CONVOLUTIONS["impala"], 84, 84))
    mixed = [{"type": "residual", "n_filters": 4, "n_blocks": 1}, {"n_filters": 2, "filter_size": 3}]
    assert ConvTorso(1, mixed)(torch.zeros(2, 1, 10, 10)).shape == (2, 2 * 3 * 3)


@pytest.mark.parametrize(
    "stage", [{"type": "residual"}, {"type": "residual", "n_filters": 0}, {"type": "residual", "n_filters": 1, "n": 2}]
)
def test_an_impossible_residual_stage_is_refused(stage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="residual stage"):
        read_convolutions([stage])
