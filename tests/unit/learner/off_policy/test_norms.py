"""Norms against naive loops: rows, and batch renormalization with its warm-up, limits and running statistics."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.learner import SACLearner
from surreal.model import SoftActorCritic
from surreal.model.norms import BATCH_EPSILON, ROW_EPSILON, BatchRenorm, batch_statistics, make_norm, read_norm

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))


def made(norm: Any, units: int = 3, members: int | None = None) -> Any:
    kind = read_norm(norm)
    assert kind is not None
    found = make_norm(kind, units, members)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return found


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_rows_are_normalized_one_by_one(name: str) -> None:
    norm, features = made(name, members=2), torch.randn(2, 5, 3) * 4.0 + 1.0
    found = norm.forward(features).detach().numpy()
    for member in range(2):
        scale, shift = norm.scale[member, 0].detach().numpy(), norm.shift[member, 0].detach().numpy()
        for row in range(5):
            x = features[member, row].numpy()
            x = x - x.mean() if name == "layer" else x
            expected = x / np.sqrt((x**2).mean() + ROW_EPSILON) * scale + shift
            np.testing.assert_allclose(found[member, row], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.forward(features[:1], 1), norm.forward(features)[:1])


def test_batch_renormalization_is_algorithm_1() -> None:
    settings = {"type": "batch", "momentum": 0.8, "warm_up": 3, "r_limit": 1.2, "d_limit": 0.4}
    norm = made(settings)
    mean, variance = np.zeros(3), np.ones(3)
    scale, shift = norm.scale.detach().double().numpy(), norm.shift.detach().double().numpy()
    for update in range(8):
        features = torch.randn(16, 3) * 1.5 + 1.0
        with batch_statistics(norm):
            found = norm.forward(features)
        for unit in range(3):
            x = features[:, unit].double().numpy()
            deviation, running = np.sqrt(x.var() + BATCH_EPSILON), np.sqrt(variance[unit] + BATCH_EPSILON)
            r, d = 1.0, 0.0
            if update >= 3:
                r = min(max(deviation / running, 1 / 1.2), 1.2)
                d = min(max((x.mean() - mean[unit]) / running, -0.4), 0.4)
            expected = ((x - x.mean()) / deviation * r + d) * scale[unit] + shift[unit]
            np.testing.assert_allclose(found[:, unit].detach(), expected, rtol=1e-4, atol=1e-4)
            mean[unit] += 0.2 * (x.mean() - mean[unit])
            variance[unit] += 0.2 * (x.var() - variance[unit])
    np.testing.assert_allclose(norm.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(norm.variance, variance, rtol=1e-4)
    before = copy.deepcopy(norm.state_dict())
    expected = (features.numpy() - mean) / np.sqrt(variance + BATCH_EPSILON) * scale + shift
    np.testing.assert_allclose(norm.forward(features).detach(), expected, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())


def test_r_and_d_have_no_gradient_and_the_batch_has() -> None:
    norm = made({"type": "batch", "warm_up": 0})
    features = torch.randn(6, 3, requires_grad=True)
    with batch_statistics(norm):
        (gradient,) = torch.autograd.grad(norm.forward(features)[:, 0].square().sum(), features)
    # The batch's mean does not change the output, so the gradient sums to 0 over the batch.
    assert gradient[:, 0].abs().sum() > 0.0
    torch.testing.assert_close(gradient.sum(0), torch.zeros(3), atol=1e-4, rtol=0.0)


def test_members_have_statistics_of_their_own_and_other_threads_use_running_ones() -> None:
    norm, features = made("batch", members=2), torch.randn(2, 8, 3) + torch.tensor([0.0, 5.0]).view(2, 1, 1)
    running = norm.forward(features)
    found: list[torch.Tensor] = []
    with batch_statistics(norm):
        thread = threading.Thread(target=lambda: found.append(norm.forward(features)))
        thread.start()
        thread.join()
        norm.forward(features)
    torch.testing.assert_close(found[0], running)
    torch.testing.assert_close(norm.mean, 0.01 * features.mean(1, keepdim=True))


def test_an_update_counts_online_batches_once_and_the_target_follows(make_batch: Any) -> None:
    model = SoftActorCritic([8], action_space=spaces.Box(-1.0, 1.0, (2,)), norm="batch", obs_spec=OBS, seed=0)
    learner = SACLearner(model)
    learner.optimize(0, make_batch(0)._replace(action=torch.rand(16, 2)))
    norms = {name: each for name, each in model.named_modules() if isinstance(each, BatchRenorm)}
    assert [float(each.batches) for each in norms.values()] == [1.0, 1.0]
    theirs = learner.target.network.state_dict()
    assert {name: float(each) for name, each in theirs.items() if name.endswith("batches")} == {
        "dense.hidden.0.norm.batches": 1.0
    }
    assert {"actor.body.norms.0.mean", "critic.dense.hidden.0.norm.variance"} <= set(model.tensors())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="norm 'group' is unknown; use one of layer, rms, batch"):
        read_norm("group")
    with pytest.raises(ValueError, match=r"norm\.r_limit is 0\.5"):
        read_norm({"type": "batch", "r_limit": 0.5})
    with pytest.raises(ValueError, match="batch has momentum"):
        read_norm({"type": "batch", "rate": 0.5})
    with pytest.raises(ValueError, match="use norm alone"):
        SoftActorCritic([8], action_space=spaces.Box(-1.0, 1.0, (2,)), norm="rms", layer_norm=True)
    model = SoftActorCritic([8], action_space=spaces.Box(-1.0, 1.0, (2,)), norm="batch", obs_spec=OBS)
    with pytest.raises(ValueError, match="parameter servers cannot count"):
        SACLearner(model).send_gradients(lambda _: None)
