"""The critics' loss, against a naive loop."""

from __future__ import annotations

import pytest
import torch

from surreal.learner.losses import critic_loss, l2_penalty


@pytest.mark.parametrize("is_weighted", [False, True])
def test_squared_errors_are_summed_over_critics_and_averaged_over_rows(is_weighted: bool) -> None:
    q, target, weight = torch.randn(2, 5), torch.randn(5), torch.rand(5)
    expected = 0.0
    for row in range(5):
        for critic in range(2):
            error = (q[critic, row] - target[row]).item()
            expected += error**2 * (weight[row].item() if is_weighted else 1.0) / 5
    assert critic_loss(q, target, weight if is_weighted else None).item() == pytest.approx(expected, rel=1e-5)


def test_targets_with_an_axis_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="target has shape"):
        critic_loss(torch.zeros(2, 5), torch.zeros(5, 1))
    with pytest.raises(ValueError, match="q has shape"):
        critic_loss(torch.zeros(5), torch.zeros(5))


def test_l2_counts_weights_and_no_biases() -> None:
    named = [("a.weight", torch.tensor([1.0, -2.0])), ("a.bias", torch.tensor([7.0])), ("weight", torch.tensor([3.0]))]
    assert l2_penalty(named).item() == 14.0
