"""Advantages against the papers' sums, in deliberately naive loops over trajectories with every kind of end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.pytorch import recording
from surreal.learner.advantages import generalised_advantages, vtrace

GAMMA = 0.9


class Rows(NamedTuple):
    """[T, B], value [T + 1, B]."""

    reward: Tensor
    discount: Tensor
    mask: Tensor
    value: Tensor


def random_rows(steps: int = 12, columns: int = 6, seed: int = 0) -> Rows:
    """Episodes that terminate and are truncated inside trajectories, with a row of their final observation after it."""
    rng = np.random.default_rng(seed)
    reward, mask = rng.normal(size=(steps, columns)), np.ones((steps, columns))
    discount = np.full((steps, columns), GAMMA)
    for b in range(columns):
        for t in range(1, steps):
            if mask[t - 1, b] and rng.random() < 0.3:
                mask[t, b] = reward[t, b] = discount[t, b] = 0.0
                if rng.random() < 0.5:
                    discount[t - 1, b] = 0.0
    mask[9:, 2] = reward[9:, 2] = discount[9:, 2] = 0.0  # a lane that broke off: its rest is filled up
    value = rng.normal(size=(steps + 1, columns))
    return Rows(*(torch.tensor(array, dtype=torch.float32) for array in (reward, discount, mask, value)))


def n_step_return(rows: Rows, t: int, b: int, n: int) -> float:
    """Sum of n discounted rewards and the value behind them, or of as many as the episode has."""
    total, weight = 0.0, 1.0
    for s in range(t, t + n):
        if s == len(rows.reward) or not rows.mask[s, b]:
            return total + weight * float(rows.value[s, b])
        total += weight * float(rows.reward[s, b])
        weight *= float(rows.discount[s, b])
    return total + weight * float(rows.value[t + n, b]) if t + n < len(rows.value) else total


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_an_advantage_is_the_mean_of_n_step_advantages_weighted_by_lambda(gae_lambda: float) -> None:
    rows = random_rows()
    found = generalised_advantages(*rows, gae_lambda)
    steps, columns = rows.reward.shape
    for b in range(columns):
        for t in range(steps):
            if not rows.mask[t, b]:
                assert found[t, b] == 0.0
                continue
            # Schulman et al. 2016 eq. 16; all further n-step returns are the same once the end is reached.
            far = 4 * steps
            weights = [(1.0 - gae_lambda) * gae_lambda ** (n - 1) for n in range(1, far)]
            weights.append(1.0 - sum(weights))
            returns = [n_step_return(rows, t, b, min(n, steps - t)) for n in range(1, far + 1)]
            expected = sum(w * r for w, r in zip(weights, returns, strict=True)) - float(rows.value[t, b])
            assert float(found[t, b]) == pytest.approx(expected, abs=1e-4)


def test_a_truncated_episode_is_bootstrapped_from_its_final_observation_and_a_terminated_one_is_not() -> None:
    reward, mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    discount = torch.tensor([[0.9, 0.0], [0.0, 0.0]])  # truncated, terminated
    value = torch.tensor([[0.0, 0.0], [10.0, 10.0], [99.0, 99.0]])
    found = generalised_advantages(reward, discount, mask, value, 1.0)
    torch.testing.assert_close(found[0], torch.tensor([10.0, 1.0]))


def test_nothing_of_the_next_episode_reaches_the_one_before() -> None:
    rows = random_rows()
    b = next(b for b in range(6) if 0 < int(rows.mask[:, b].argmin()) < 6)
    ends = int(rows.mask[:, b].argmin())
    changed = rows._replace(reward=rows.reward.clone(), value=rows.value.clone())
    changed.reward[ends + 1 :] += rows.mask[ends + 1 :] * 5.0
    changed.value[ends + 1 :] += 5.0
    for function in (
        lambda r: generalised_advantages(*r, 0.9),
        lambda r: vtrace(torch.zeros_like(r.reward), *r).target,
    ):
        torch.testing.assert_close(function(rows)[:ends, b], function(changed)[:ends, b])


@pytest.mark.parametrize(("rho_bar", "c_bar", "trace_lambda"), [(1.0, 1.0, 1.0), (2.0, 0.5, 0.9)])
def test_v_trace_is_the_sum_of_the_paper(rho_bar: float, c_bar: float, trace_lambda: float) -> None:
    rows = random_rows()
    log_ratio = torch.randn(rows.reward.shape, generator=torch.Generator().manual_seed(0))
    found = vtrace(log_ratio, *rows, rho_bar=rho_bar, c_bar=c_bar, trace_lambda=trace_lambda)
    steps, columns = rows.reward.shape
    reward, discount, mask, value = (tensor.double().numpy() for tensor in rows)
    ratio = log_ratio.exp().double().numpy()
    for b in range(columns):
        targets = [0.0] * steps + [value[steps, b]]
        for s in range(steps):
            # Espeholt et al. 2018 eq. 1.
            target = value[s, b]
            for t in range(s, steps):
                if not mask[t, b]:
                    break
                trace = np.prod([GAMMA * trace_lambda * min(c_bar, ratio[i, b]) for i in range(s, t)])
                delta = reward[t, b] + discount[t, b] * value[t + 1, b] - value[t, b]
                target += trace * min(rho_bar, ratio[t, b]) * delta
            targets[s] = target
        np.testing.assert_allclose(found.target[:, b], targets[:-1], atol=1e-4)
        for s in range(steps):
            delta = reward[s, b] + discount[s, b] * targets[s + 1] - value[s, b]
            expected = mask[s, b] * min(rho_bar, ratio[s, b]) * delta
            assert float(found.advantage[s, b]) == pytest.approx(expected, abs=1e-4)


def test_v_trace_without_lag_is_the_n_step_return() -> None:
    rows = random_rows()
    found = vtrace(torch.zeros_like(rows.reward), *rows)
    expected = generalised_advantages(*rows, 1.0) + rows.value[:-1]
    torch.testing.assert_close(found.target, expected)


def test_columns_of_another_rank_are_refused() -> None:
    rows = random_rows()
    with pytest.raises(ValueError, match=r"value has shape \(13, 6, 1\)"):
        generalised_advantages(*rows[:3], rows.value[..., None], 0.9)


def test_sums_by_numpy_are_those_of_torch_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    reward, value = torch.randn(20, 3, generator=generator), torch.randn(21, 3, generator=generator)
    discount, mask = torch.rand(20, 3, generator=generator), (torch.rand(20, 3, generator=generator) < 0.8).float()
    by_numpy = generalised_advantages(reward, discount, mask, value, 0.9)
    with recording():
        by_torch = generalised_advantages(reward, discount, mask, value, 0.9)
    assert torch.equal(by_numpy, by_torch)
    leaf = reward.clone().requires_grad_()
    generalised_advantages(leaf, discount, mask, value, 0.9).sum().backward()
    assert leaf.grad is not None and leaf.grad.any()
