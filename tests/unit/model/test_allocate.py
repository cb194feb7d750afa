"""A layer without memory gets some, and nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from surreal.model.mlp import allocate


def test_layer_gets_parameters_of_its_shapes_on_the_cpu() -> None:
    layer = allocate(nn.Conv2d(3, 5, 2, device="meta", dtype=torch.float64))
    assert [(name, tuple(p.shape), p.dtype, p.device.type) for name, p in layer.named_parameters()] == [
        ("weight", (5, 3, 2, 2), torch.float64, "cpu"), ("bias", (5,), torch.float64, "cpu"),
    ]  # fmt: skip
    assert all(parameter.requires_grad for parameter in layer.parameters())


def test_random_numbers_of_torch_stay_where_they_are() -> None:
    before = torch.random.get_rng_state()
    allocate(nn.Linear(4, 4, device="meta"))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_models_are_made_without_torch_s_symbolic_shapes_and_compiler() -> None:
    code = """
import sys
import gymnasium, numpy as np
from surreal.envs.pools.base import describe_observations
from surreal.learner import DQNLearner
from surreal.model import QFunction
model = QFunction(hiddens=[8], action_space=gymnasium.spaces.Discrete(2))
model.materialize(describe_observations(
    gymnasium.spaces.Box(0, 1, (4,), np.float32)))
DQNLearner(model, None)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"sympy", "torch._dynamo"} & set(done.stdout.split())
