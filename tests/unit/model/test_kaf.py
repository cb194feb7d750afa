"""Kernel activation functions against naive sums, and what they begin as."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.specs import ObsSpec
from surreal.model import KAF, MLP, KafSettings, QFunction


def randomize(kaf: KAF) -> None:
    with torch.no_grad():
        kaf.alpha.normal_(generator=torch.Generator().manual_seed(0))


def test_the_points_of_the_dictionary_are_spread_evenly() -> None:
    kaf = KAF(3, KafSettings(boundary=2.0, size=5))
    assert kaf.dictionary.tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_each_unit_is_the_sum_of_its_own_kernels() -> None:
    kaf = KAF(3, KafSettings(boundary=1.5, size=4, gamma=0.7))
    randomize(kaf)
    features = torch.randn(2, 5, 3)
    expected = np.zeros((2, 5, 3))
    for place in np.ndindex(2, 5, 3):
        for i, point in enumerate(kaf.dictionary.tolist()):
            weight = math.exp(-0.7 * (features[place].item() - point) ** 2)
            expected[place] += kaf.alpha[place[-1], i].item() * weight
    np.testing.assert_allclose(kaf(features).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_each_unit_is_the_sum_over_the_grid_of_its_two_numbers() -> None:
    kaf = KAF(2, KafSettings(boundary=1.0, size=3, kernel="rbf2d", gamma=1.3))
    randomize(kaf)
    features, points = torch.randn(4, 4), kaf.dictionary.tolist()
    expected = np.zeros((4, 2))
    for row, unit in np.ndindex(4, 2):
        s, t = features[row, unit].item(), features[row, unit + 2].item()
        for i, j in np.ndindex(3, 3):
            weight = math.exp(-1.3 * ((s - points[i]) ** 2 + (t - points[j]) ** 2))
            expected[row, unit] += kaf.alpha[unit, i, j].item() * weight
    np.testing.assert_allclose(kaf(features).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "rbf2d"])
def test_they_begin_as_tanh(kernel: str) -> None:
    x = torch.linspace(-1.5, 1.5, 31)[:, None]
    features, total = (x, x) if kernel == "rbf" else (torch.cat((x, 0.3 * x), 1), 1.3 * x)
    torch.testing.assert_close(KAF(1, KafSettings(kernel=kernel))(features), torch.tanh(total), atol=0.02, rtol=0.0)


@pytest.mark.parametrize("kernel", ["rbf", "rbf2d"])
def test_a_network_with_them_learns_what_they_are(kernel: str) -> None:
    activation = {"type": "kaf", "kernel": kernel, "size": 6}
    mlp = MLP((3, 8, 2), activation, generator=torch.Generator().manual_seed(0))
    assert len(mlp.learned) == 1
    mlp(torch.randn(4, 3)).square().sum().backward()
    gradient = mlp.learned[0].alpha.grad
    assert isinstance(gradient, torch.Tensor) and bool((gradient.abs().sum(-1) > 0).any())
    assert gradient.shape[0] == 8


def test_a_model_takes_them_by_name_and_hands_their_parameters_on() -> None:
    def make(seed: int) -> QFunction:
        return QFunction([8], action_space=2, activation="kaf", obs_spec=ObsSpec.from_obs(np.zeros(3)), seed=seed)

    one, other, obs = make(0), make(1), torch.randn(5, 3)
    with torch.no_grad():
        one.torso.dense.learned[0].alpha.add_(0.5)  # type: ignore[union-attr,operator]
    other.load_tensors(one.tensors(), header=one.header())
    torch.testing.assert_close(other(obs), one(obs))


@pytest.mark.parametrize(
    "activation",
    ["kafka", {"type": "kaf", "size": 1}, {"type": "kaf", "kernel": "rbf3d"}, {"type": "kaf", "gamma": 0.0},
     {"type": "kaf", "width": 2}, {"type": "relu", "size": 3}, {"size": 3}],
)  # fmt: skip
def test_what_is_impossible_is_refused(activation: Any) -> None:
    with pytest.raises(ValueError, match=r"kaf|unknown|settings|activation\.(size|kernel|gamma) is .*; it must be"):
        QFunction([8], action_space=2, activation=activation)


@pytest.mark.parametrize("kernel", ["rbf", "rbf2d"])
def test_members_of_an_ensemble_have_activations_of_their_own(kernel: str) -> None:
    settings = KafSettings(size=4, kernel=kernel)
    together = KAF(3, settings, members=2)
    randomize(together)
    features = torch.randn(2, 5, 3 * settings.inputs_per_unit)
    found = together(features)
    assert found.shape == (2, 5, 3)
    for member in range(2):
        alone = KAF(3, settings)
        with torch.no_grad():
            alone.alpha.copy_(together.alpha[member, 0])
        torch.testing.assert_close(alone(features[member]), found[member])
    torch.testing.assert_close(together(features[:1], 1), found[:1])
