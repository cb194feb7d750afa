"""Trajectories as a policy agent makes them, and a small world where one action is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.base.types import SampleInfo, TrajectoryBatch
from surreal.learner.on_policy.evaluating import evaluate
from surreal.model import ActorCritic

MakeModel = Callable[..., ActorCritic]
Play = Callable[..., TrajectoryBatch]
OBS = ObsSpec.from_obs(np.zeros(3, np.float32))


Mix = Callable[..., TrajectoryBatch]


@pytest.fixture
def make_model() -> MakeModel:
    def make(
        hiddens: tuple[int, ...] = (16,), *, space: spaces.Space[Any] | None = None, **options: Any
    ) -> ActorCritic:
        torch.manual_seed(0)
        return ActorCritic(hiddens, action_space=space or spaces.Discrete(3), obs_spec=OBS, seed=0, **options)

    return make


@pytest.fixture
def play() -> Play:
    """Let a model act: the right action is the number of the largest observation, or the first two of them."""

    def play(
        model: ActorCritic, rows: int = 16, columns: int = 8, seed: int = 0, gamma: float = 0.5
    ) -> TrajectoryBatch:
        generator = torch.Generator().manual_seed(seed)
        obs = torch.randn(rows + 1, columns, 3, generator=generator)
        shape = (rows, columns)
        mask = (torch.rand(shape, generator=generator) < 0.9).float()
        mask[0] = 1.0
        terminated = (torch.rand(shape, generator=generator) < 0.5) & (mask > 0)
        ends = torch.cat((mask[1:] == 0.0, torch.zeros(1, columns, dtype=torch.bool)))
        terminated &= ends
        is_first = torch.zeros(rows + 1, columns, dtype=torch.bool)
        is_first[2:] = ends[:-1]
        is_first[1:-1] &= mask[1:] > 0
        is_first[-1] = False
        state = {} if model.state_shape is None else {"state": torch.zeros(columns, *model.state_shape)}
        batch = TrajectoryBatch(
            obs=obs,
            action=torch.zeros(shape),
            reward=torch.zeros(shape),
            discount=0.5 * mask * ~terminated,
            mask=mask,
            is_first=is_first,
            terminated=terminated,
            truncated=ends & ~terminated,
            version=torch.zeros(shape, dtype=torch.int64),
            extras={},
            initial_state=state,
            sample_info=SampleInfo(*[np.zeros(columns, np.int64)] * 3),
        )
        with torch.no_grad():
            action = evaluate(model, batch._replace(action=_any_action(model, shape))).policy.sample(generator)
            batch = batch._replace(action=action)
            _, log_probability, value = evaluate(model, batch)
        extras = {"log_probability": log_probability, "value": value[:-1]}
        return batch._replace(reward=mask * _reward(obs[:-1], action), extras=extras)

    return play


def _any_action(model: ActorCritic, shape: tuple[int, int]) -> torch.Tensor:
    return torch.zeros(*shape, *model.action_space.shape)


def _reward(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    if action.is_floating_point():
        return -(action - obs[..., : action.shape[-1]]).square().sum(-1)
    if action.ndim == 3:
        return (action == (obs[..., : action.shape[-1]] > 0)).float().sum(-1)
    return (action == obs.argmax(-1)).float()


@pytest.fixture
def mix(play: Play) -> Mix:
    """Let a model act, and mark the later half of the columns as replayed."""

    def mix(model: ActorCritic, seed: int = 0, **options: Any) -> TrajectoryBatch:
        batch = play(model, seed=seed, **options)
        is_on_policy = torch.zeros(batch.mask.shape, dtype=torch.bool)
        is_on_policy[:, : batch.mask.shape[1] // 2] = True
        return batch._replace(extras={**batch.extras, "is_on_policy": is_on_policy})

    return mix
