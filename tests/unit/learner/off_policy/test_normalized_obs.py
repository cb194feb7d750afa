"""Observations of off-policy actor-critics are normalized when they are sampled, by the batches so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.agent.noise import ParameterNoise
from surreal.base.specs import ObsSpec
from surreal.base.types import Batch
from surreal.learner import DDPGLearner, SACLearner
from surreal.model import DeterministicActorCritic, SoftActorCritic
from tests.unit.learner.off_policy.checks import BOX, assert_goes_on_bit_for_bit

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
KINDS: Any = [(SACLearner, SoftActorCritic), (DDPGLearner, DeterministicActorCritic)]


def shifted(batch: Batch) -> Batch:
    scale, shift = torch.tensor([100.0, 1.0, 0.1, 1.0]), torch.tensor([0.0, 50.0, 0.0, -3.0])
    return batch._replace(obs=batch.obs * scale + shift, next_obs=batch.next_obs * scale + shift)


def naive(batches: list[Batch]) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the observations of all of these batches."""
    rows = np.concatenate([batch.obs.numpy().astype(np.float64) for batch in batches])
    mean, deviation = rows.mean(0), np.sqrt(rows.var(0) + 1e-8)
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(deviation, dtype=torch.float32)


@pytest.mark.parametrize(("learner_class", "model_class"), KINDS)
def test_updates_are_those_of_batches_that_were_normalized_by_hand(
    learner_class: Any, model_class: Any, make_continuous: Any
) -> None:
    def made(**options: Any) -> Any:
        return learner_class(model_class([6], action_space=BOX, obs_spec=OBS, seed=0, **options))

    learner, plain = made(normalize_obs=True), made()
    batches = [shifted(make_continuous(seed)) for seed in range(4)]
    for i, batch in enumerate(batches):
        mean, deviation = naive(batches[: i + 1])
        learner.optimize(i, batch)
        obs, next_obs = (((each - mean) / deviation).clamp(-10.0, 10.0) for each in (batch.obs, batch.next_obs))
        plain.optimize(i, batch._replace(obs=obs, next_obs=next_obs))
    expected = plain.model.tensors()
    for name, tensor in learner.model.tensors().items():
        if not name.startswith("obs_filter"):
            torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-5)
    # Agents see them as the learner does.
    obs = (batches[0].obs - mean) / deviation
    ours, theirs = learner.model(batches[0].obs), plain.model(obs)
    if learner_class is SACLearner:
        ours, theirs = ours.mode(), theirs.mode()
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_restored_learner_goes_on_bit_for_bit(make_continuous: Any, tmp_path: Any) -> None:
    def made() -> Any:
        return SACLearner(SoftActorCritic([6], action_space=BOX, obs_spec=OBS, seed=0, normalize_obs=True))

    assert_goes_on_bit_for_bit(made, [shifted(make_continuous(seed)) for seed in range(6)], tmp_path)


def test_noise_on_parameters_sees_normalized_observations(make_continuous: Any) -> None:
    model = DeterministicActorCritic([6], action_space=BOX, obs_spec=OBS, seed=0, normalize_obs=True)
    batch = shifted(make_continuous())
    DDPGLearner(model).optimize(0, batch)
    noise = ParameterNoise(model, np.random.default_rng(0))
    noise.sigma = 0.0
    with torch.no_grad():
        actions = model(batch.obs)
        torch.testing.assert_close(noise.perturb(batch.obs, actions, 0.1, is_new=False), actions)
