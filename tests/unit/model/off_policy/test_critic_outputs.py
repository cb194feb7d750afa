"""What outputs of critics say of returns: values, targets and losses, each against a naive loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.model import DiscreteSoftActorCritic, SoftActorCritic
from surreal.model.off_policy.critic_outputs import CategoricalOutput, QuantileOutput, ScalarOutput, read_critic_output

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
REWARD, DISCOUNT, COST = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.9, 0.0, 0.5]), torch.tensor([0.3, 0.1, -0.2])


def outputs_of(critics: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(critics, 3, size, generator=torch.Generator().manual_seed(seed))


def test_quantile_targets_leave_out_the_largest_of_all_critics() -> None:
    output, outputs = QuantileOutput(4, 1), outputs_of(3, 4)
    target = output.target(outputs, REWARD, DISCOUNT, COST)
    for row in range(3):
        pooled = sorted(float(outputs[critic, row, i]) for critic in range(3) for i in range(4))
        expected = [float(REWARD[row] + DISCOUNT[row] * (each - COST[row])) for each in pooled[:9]]
        assert sorted(target[row].tolist()) == pytest.approx(expected, abs=1e-5)


def test_quantile_losses_are_those_of_each_critic_alone() -> None:
    output, outputs, target = QuantileOutput(4, 1), outputs_of(2, 4), outputs_of(1, 5, seed=1)[0]
    losses = output.losses(outputs, target)
    for critic in range(2):
        for row in range(3):
            expected = 0.0
            for i in range(4):
                for j in range(5):
                    error = float(target[row, j] - outputs[critic, row, i])
                    huber = 0.5 * error**2 if abs(error) <= 1.0 else abs(error) - 0.5
                    expected += abs((i + 0.5) / 4 - (error < 0.0)) * huber / (4 * 5)
            assert losses[critic, row].item() == pytest.approx(expected, rel=1e-4)
    assert output.climbed(outputs)[0].item() == pytest.approx(outputs[:, 0].mean().item(), abs=1e-6)


def test_categorical_targets_are_the_projected_distribution_of_the_smaller_critic() -> None:
    output, outputs = CategoricalOutput(7), outputs_of(2, 7)
    output.edge.fill_(3.0)
    centers = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    target = output.target(outputs, REWARD, DISCOUNT, COST)
    for row in range(3):
        members = [outputs[critic, row].softmax(0).tolist() for critic in range(2)]
        chosen = min(members, key=lambda each: sum(p * center for p, center in zip(each, centers, strict=True)))
        expected = [0.0] * 7
        for probability, center in zip(chosen, centers, strict=True):
            moved = float(REWARD[row] + DISCOUNT[row] * (center - float(COST[row])))
            position = (min(max(moved, -3.0), 3.0) + 3.0) / 1.0
            below = min(math.floor(position), 5)
            expected[below] += probability * (below + 1 - position)
            expected[below + 1] += probability * (position - below)
        assert target[row].tolist() == pytest.approx(expected, abs=1e-5)
    losses = output.losses(outputs, target)
    expected_loss = -sum(float(target[1, i]) * math.log(float(outputs[0, 1].softmax(0)[i])) for i in range(7))
    assert losses[0, 1].item() == pytest.approx(expected_loss, rel=1e-4)


def test_the_edge_of_the_bins_follows_the_largest_rewards_and_never_shrinks() -> None:
    output = CategoricalOutput(5)
    output.follow(torch.tensor([1.0, -3.0]), torch.tensor([0.9, 0.0]))
    assert output.edge.item() == pytest.approx(2.0 * 2.0 / 0.1, rel=1e-4)
    assert output.forward(torch.tensor([0.0, 0.0, 0.0, 0.0, 50.0])).item() == pytest.approx(output.edge.item())
    before = output.edge.item()
    output.follow(torch.tensor([0.1]), torch.tensor([0.9]))
    assert output.edge.item() == before


@pytest.mark.parametrize("output", [ScalarOutput(), QuantileOutput(5, 1), CategoricalOutput(9)])
def test_errors_are_differences_of_values(output: ScalarOutput) -> None:
    outputs, other = outputs_of(2, output.size), outputs_of(2, output.size, seed=1)
    if isinstance(output, CategoricalOutput):
        output.edge.fill_(2.0)
    target = output.target(other, torch.zeros(3), torch.zeros(3))
    torch.testing.assert_close(output.errors(outputs, target), -output.forward(outputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("scalars", "critic_output 'scalars' is unknown; use one of scalar, quantile, categorical"),
        (
            {"type": "quantile", "quantiles": 5, "dropped": 5},
            "critic_output.dropped is 5; it must be below quantiles, 5",
        ),
        ({"type": "quantile", "quantiles": 1}, "critic_output.quantiles is 1; it must be >= 2"),
        ({"type": "categorical", "bin": 9}, "unexpected keyword argument 'bin'"),
    ],
)
def test_impossible_settings_are_named(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        SoftActorCritic([8], action_space=BOX, critic_output=given)
    assert read_critic_output("quantile").size == 25


def test_discrete_actions_have_scalar_critics() -> None:
    with pytest.raises(ValueError, match="critics of discrete actions have scalar"):
        DiscreteSoftActorCritic([8], action_space=spaces.Discrete(2), critic_output="quantile")
