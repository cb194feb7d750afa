"""Dense layers and activations."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch

from surreal.model import ACTIVATIONS, MLP, Model, get_activation

NAIVE = {
    "none": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "relu": lambda x: max(0.0, x),
    "relu6": lambda x: min(6.0, max(0.0, x)),
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "softplus": lambda x: math.log1p(math.exp(x)),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "hardtanh": lambda x: min(1.0, max(-1.0, x)),
}


@pytest.mark.parametrize("name", NAIVE)
def test_activation_against_its_formula(name: str) -> None:
    x = [-3.0, -0.5, 0.0, 0.5, 7.0]
    expected = torch.tensor([NAIVE[name](value) for value in x])
    torch.testing.assert_close(get_activation(name)(torch.tensor(x)), expected)


def test_softmax_is_over_the_units() -> None:
    output = get_activation("softmax")(torch.randn(5, 3))
    torch.testing.assert_close(output.sum(dim=1), torch.ones(5))
    assert set(ACTIVATIONS) == {*NAIVE, "softmax"}


def test_mlp_against_a_naive_loop() -> None:
    mlp = MLP([4, 8, 5, 2], "tanh", "relu", torch.Generator().manual_seed(0))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    expected = x
    for index, layer in enumerate(mlp.layers):
        weight, bias = (tensor.detach().numpy() for tensor in (layer.weight, layer.bias))
        expected = expected @ weight.T + bias
        expected = np.maximum(expected, 0) if index == 2 else np.tanh(expected)
    np.testing.assert_allclose(mlp(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_mlp_needs_a_layer() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        MLP([4])


def test_a_model_of_ones_own_needs_only_forward() -> None:
    class Net(Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.layer(obs)

    net = Net()
    assert net.is_materialized
    assert set(net.parameter_contract()) == {"layer.weight", "layer.bias"}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_writing_over_a_layers_output_changes_neither_values_nor_gradients(name: str) -> None:
    mlp = MLP([4, 8, 5, 2], name, "none", torch.Generator().manual_seed(0))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    given = x.clone()
    naive = x
    for index, layer in enumerate(mlp.layers):
        naive = torch.nn.functional.linear(naive, layer.weight, layer.bias)
        naive = naive if index == 2 else get_activation(name)(naive)
    expected = torch.autograd.grad(naive.square().sum(), list(mlp.parameters()), create_graph=True)
    found = torch.autograd.grad(mlp(x).square().sum(), list(mlp.parameters()), create_graph=True)
    torch.testing.assert_close(found, expected)
    # The second derivative, as conjugate gradients of TRPO need it.
    sums = (sum(gradient.sum() for gradient in gradients) for gradients in (found, expected))
    torch.testing.assert_close(*(torch.autograd.grad(each, mlp.layers[0].weight) for each in sums))
    assert torch.equal(x, given)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_rows_are_normalized_before_each_activation(norm: Literal["layer", "rms"]) -> None:
    mlp, features = MLP((3, 5, 4), output_activation="tanh", norm=norm), torch.randn(6, 3)
    expected = features
    for layer, activation in zip(mlp.layers, (torch.relu, torch.tanh), strict=True):
        rows = torch.nn.functional.linear(expected, layer.weight, layer.bias)  # type: ignore[arg-type]
        rows = rows - rows.mean(1, keepdim=True) if norm == "layer" else rows
        expected = activation(rows / (rows.square().mean(1, keepdim=True) + 1e-5).sqrt())
    torch.testing.assert_close(mlp(features), expected)
