"""Noisy networks: what their noise is, and that there is none unless it was drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surreal.base.specs import ObsSpec
from surreal.model import NoisyQFunction
from surreal.model.off_policy.q_function import NoisyDense

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_noise_is_factorised_and_scaled_by_its_learned_size() -> None:
    layer = NoisyDense(3, 2)
    torch.nn.init.uniform_(layer.weight_sigma)
    features = torch.randn(5, 3)
    plain = features @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(features), plain)
    layer.draw_noise(generator())
    inputs, outputs = (torch.empty(size).normal_(generator=draws) for draws in [generator()] for size in (3, 2))
    expected = plain.detach().clone()
    for row in range(5):
        for i in range(2):
            e_i = torch.sign(outputs[i]) * outputs[i].abs().sqrt()
            for j in range(3):
                e_j = torch.sign(inputs[j]) * inputs[j].abs().sqrt()
                expected[row, i] += layer.weight_sigma[i, j].detach() * e_i * e_j * features[row, j]
            expected[row, i] += layer.bias_sigma[i].detach() * e_i
    torch.testing.assert_close(layer(features), expected)
    layer.clear_noise()
    torch.testing.assert_close(layer(features), plain)


@pytest.mark.parametrize("dueling", [False, True])
def test_all_dense_layers_are_noisy_and_their_sizes_are_learned(dueling: bool) -> None:
    model = NoisyQFunction([8, 6], action_space=3, dueling=dueling, obs_spec=OBS, seed=0)
    obs = torch.randn(5, 4)
    clean = model(obs)
    model.draw_noise(generator())
    assert model(obs).shape == (5, 3)
    assert (model(obs) != clean).all()
    model(obs).square().sum().backward()
    sizes = {name for name, tensor in model.named_parameters() if name.endswith("sigma") and tensor.grad is not None}
    assert len(sizes) == 6
    model.clear_noise()
    torch.testing.assert_close(model(obs), clean)


def test_noise_does_not_travel_with_the_parameters() -> None:
    theirs = NoisyQFunction([8], action_space=3, obs_spec=OBS, seed=0)
    theirs.draw_noise(generator())
    ours = NoisyQFunction([8], action_space=3)
    ours.load_tensors(theirs.tensors(), header=theirs.header())
    theirs.clear_noise()
    obs = torch.randn(5, 4)
    torch.testing.assert_close(ours(obs), theirs(obs))


def test_noise_of_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise_sigma is 0\.0"):
        NoisyQFunction(action_space=2, noise_sigma=0.0)


def test_a_norm_of_noisy_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="norm is 'layer'; noisy layers cannot have one"):
        NoisyQFunction(action_space=2, norm="layer")
