"""Rainbow's six parts, each on or off: gradients and priorities of an update against a naive loop over its rows."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.types import Batch, Gradients
from surreal.config import load_config, preset_names
from surreal.learner import DQNLearner, QuantileDQNLearner
from surreal.learner.losses import UpdateNoise
from surreal.model import NoisyQFunction, NoisyQuantileQFunction, QFunction, QuantileQFunction
from surreal.replay.store.storage import n_step

GAMMA, STEPS, QUANTILES, KAPPA = 0.9, 12, 3, 0.5
MODELS: dict[tuple[bool, bool], type[QFunction]] = {
    (False, False): QFunction,
    (False, True): QuantileQFunction,
    (True, False): NoisyQFunction,
    (True, True): NoisyQuantileQFunction,
}


class Segment:
    """Steps of one environment; the last one ends its episode."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.obs = torch.tensor(rng.normal(size=(STEPS + 1, 4)), dtype=torch.float32)
        self.action = torch.tensor(rng.integers(0, 2, STEPS))
        self.reward = rng.random(STEPS).astype(np.float32)
        self.terminated = np.arange(STEPS) == STEPS - 1
        self.weight = torch.tensor(rng.random(STEPS), dtype=torch.float32)

    def batch(self, n: int, is_weighted: bool) -> Batch:
        """Return all steps, with sums over n of them."""
        numbers = np.arange(STEPS)
        found = n_step(numbers, self.reward, self.terminated, numbers, n=n, gamma=GAMMA)
        return Batch(
            self.obs[:-1],
            self.action,
            torch.from_numpy(found.reward),
            torch.from_numpy(found.discount),
            self.obs[torch.from_numpy(numbers + found.horizon)],
            {"weight": self.weight} if is_weighted else {},
            cast(Any, None),
        )


def naive_losses(segment: Segment, model: Any, frozen: Any, n: int, *, double: bool) -> list[tuple[Tensor, Tensor]]:
    """Compute the loss of each step, and the TD error of its value."""

    def atoms(network: Any, obs: Tensor) -> Tensor:
        """Return what a network knows of each action's return, [actions, quantiles or 1]."""
        is_quantile = isinstance(network, QuantileQFunction)
        return cast(Tensor, network.quantiles(obs) if is_quantile else network(obs).unsqueeze(-1))

    found = []
    for step in range(STEPS):
        end = min(step + n, STEPS)
        total = sum(GAMMA ** (k - step) * float(segment.reward[k]) for k in range(step, end))
        predicted = atoms(model, segment.obs[step])[segment.action[step]]
        with torch.no_grad():
            following, choosing = (
                atoms(network, segment.obs[end]) for network in (frozen, model if double else frozen)
            )
            values = [float(choice.mean()) for choice in choosing]
            bootstrap = following[values.index(max(values))]
            target = total + (0.0 if end == STEPS else GAMMA ** (end - step)) * bootstrap
        loss = torch.zeros(())
        for (i, ours), theirs in product(enumerate(predicted), target):
            error = theirs - ours
            huber = 0.5 * error**2 if abs(error) <= KAPPA else KAPPA * (abs(error) - 0.5 * KAPPA)
            if isinstance(model, QuantileQFunction):
                huber = abs((i + 0.5) / QUANTILES - float(error < 0.0)) * huber / KAPPA / QUANTILES
            loss = loss + huber
        found.append((loss, (target - predicted).mean()))
    return found


@pytest.mark.parametrize("is_prioritized", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("is_quantile", [False, True])
@pytest.mark.parametrize("is_noisy", [False, True])
def test_an_update_with_any_of_the_parts_is_the_naive_one(
    is_noisy: bool, is_quantile: bool, double: bool, dueling: bool, n: int, is_prioritized: bool
) -> None:
    options: dict[str, Any] = {"num_quantiles": QUANTILES} if is_quantile else {}
    model: Any = MODELS[is_noisy, is_quantile]((6,), action_space=2, dueling=dueling, seed=0, **options)
    cls = QuantileDQNLearner if is_quantile else DQNLearner
    learner = cls(model, double=double, huber_delta=KAPPA, seed=5)
    segment = Segment()
    batch = segment.batch(n, is_prioritized)
    learner.prepare(batch)
    with torch.no_grad():
        for parameter in learner.target.network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    networks = [copy.deepcopy(network) for network in (model, learner.target.network)]
    if is_noisy:
        generator = UpdateNoise(5, learner.device).of(0)
        for network in networks:
            network.draw_noise(generator)
    rows = naive_losses(segment, *networks, n, double=double)
    weight = segment.weight if is_prioritized else torch.ones(STEPS)
    loss = torch.stack([loss for loss, _ in rows]).mul(weight).sum() / STEPS
    expected = dict(zip([name for name, _ in networks[0].named_parameters()],
                        torch.autograd.grad(loss, list(networks[0].parameters())), strict=True))  # fmt: skip

    steps: list[Gradients] = []
    priorities: list[Tensor] = []
    learner.stepper.step = steps.extend  # type: ignore[assignment, method-assign]
    learner.send_priorities = lambda _, error: priorities.append(error.abs())  # type: ignore[assignment, method-assign]
    learner.learn(0, batch)
    for name, gradient in expected.items():
        torch.testing.assert_close(steps[0].tensors[name], gradient, rtol=1e-4, atol=1e-6)
    wanted = torch.stack([row[0 if is_quantile else 1] for row in rows]).detach().abs()
    torch.testing.assert_close(priorities[0], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("preset", [name for name in preset_names() if name.endswith("rainbow")])
def test_rainbow_presets_have_all_six_parts(preset: str) -> None:
    config = load_config(preset)
    assert config.model.class_path == "surreal.model.NoisyQuantileQFunction"
    assert config.agent.class_path == "surreal.agent.NoisyQAgent"
    assert config.learner.class_path == "surreal.learner.QuantileDQNLearner"
    assert config.replay.class_path == "surreal.replay.PrioritizedReplay"
    assert config.model.args["dueling"] and config.learner.args["double"]
    assert config.learner.n_step > 1
