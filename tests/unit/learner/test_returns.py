"""Targets against deliberately naive loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surreal.learner.advantages import bootstrapped_returns
from surreal.learner.losses import q_target


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_q_target_is_the_formula(double: bool, masked: bool) -> None:
    rng = np.random.default_rng(1)
    reward, discount = rng.random((2, 20), dtype=np.float32)
    next_q, select_q = rng.normal(size=(2, 20, 5)).astype(np.float32)
    legal = rng.random((20, 5)) < 0.5
    legal[3] = False  # an episode's end: no action is, and none is needed
    expected = []
    for row in range(20):
        chooser = select_q if double else next_q
        allowed = [action for action in range(5) if legal[row][action] and masked] or [*range(5)]
        best = allowed[0]
        for action in allowed:
            if chooser[row][action] > chooser[row][best]:
                best = action
        expected.append(reward[row] + discount[row] * next_q[row][best])
    got = q_target(
        torch.tensor(reward),
        torch.tensor(discount),
        torch.tensor(next_q),
        torch.tensor(select_q) if double else None,
        torch.tensor(legal) if masked else None,
    )
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_a_terminated_row_does_not_bootstrap_and_a_truncated_one_does() -> None:
    reward, next_q = torch.ones(2), torch.full((2, 3), 10.0)
    discount = torch.tensor([0.0, 0.99])  # terminated, truncated: that is all the learner knows of an episode's end
    torch.testing.assert_close(q_target(reward, discount, next_q), torch.tensor([1.0, 10.9]))


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"discount has shape \(4, 1\)"):
        q_target(torch.zeros(4), torch.zeros(4, 1), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="select_q has shape"):
        q_target(torch.zeros(4), torch.zeros(4), torch.zeros(4, 2), torch.zeros(4))


def test_bootstrapped_returns_are_those_of_a_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    steps, batch = 9, 4
    reward, value = torch.randn(steps, batch, generator=generator), torch.randn(steps + 1, batch, generator=generator)
    discount = 0.9 * (torch.rand(steps, batch, generator=generator) < 0.8)
    mask = (torch.rand(steps, batch, generator=generator) < 0.8).float()
    found = bootstrapped_returns(reward * mask, discount * mask, mask, value)
    for b in range(batch):
        for t in range(steps):
            total, weight, s = 0.0, 1.0, t
            while s < steps and mask[s, b]:
                total += weight * float(reward[s, b])
                weight *= float(discount[s, b])
                s += 1
            assert float(found[t, b]) == pytest.approx(total + weight * float(value[s, b]), abs=1e-4)
