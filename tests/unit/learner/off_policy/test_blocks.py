"""Residual blocks against their formulas, row by row; weights and scales of constant length, through updates."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.learner import DDPGLearner, GradientLearner, SACLearner
from surreal.model import DeterministicActorCritic, SoftActorCritic
from surreal.model.mlp import kept_length
from surreal.model.norms import BATCH_EPSILON, ROW_EPSILON

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
BOX = spaces.Box(-1.0, 1.0, (2,))


def made(**options: Any) -> SoftActorCritic:
    model = SoftActorCritic([6, 6], action_space=BOX, obs_spec=OBS, seed=0, **options)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.numel() and ("norm" in name or "bias" in name):
                tensor.add_(torch.rand_like(tensor), alpha=0.5)
    return model


def dense(layer: Any, x: Tensor, member: int | None) -> Tensor:
    if member is None:
        return layer.weight @ x if layer.bias is None else layer.weight @ x + layer.bias
    found: Tensor = x @ layer.weight[member]
    return found if layer.bias is None else found + layer.bias[member, 0]


def of(tensor: Tensor, member: int | None) -> Tensor:
    return tensor if member is None else tensor[member, 0]


def row_norm(norm: Any, x: Tensor, member: int | None, *, is_centered: bool) -> Tensor:
    x = x - x.mean() if is_centered else x
    return x / (x.square().mean() + ROW_EPSILON).sqrt() * of(norm.scale, member) + of(norm.shift, member)


def batch_norm(norm: Any, x: Tensor, member: int | None) -> Tensor:
    deviation = (of(norm.variance, member) + BATCH_EPSILON).sqrt()
    return (x - of(norm.mean, member)) / deviation * of(norm.scale, member) + of(norm.shift, member)


def simba(blocks: Any, x: Tensor, member: int | None) -> Tensor:
    x = dense(blocks.first, x, member)
    for norm, up, down in zip(blocks.norms, blocks.up, blocks.down, strict=True):
        inner = dense(up, row_norm(norm, x, member, is_centered=True), member).clamp(min=0.0)
        x = x + dense(down, inner, member)
    return row_norm(blocks.last_norm, x, member, is_centered=True)


def flashsac(blocks: Any, x: Tensor, member: int | None) -> Tensor:
    x = dense(blocks.first, batch_norm(blocks.first_norm, x, member), member)
    for i in range(2):
        inner = batch_norm(blocks.norms[2 * i], dense(blocks.up[i], x, member), member).clamp(min=0.0)
        x = x + batch_norm(blocks.norms[2 * i + 1], dense(blocks.down[i], inner, member), member).clamp(min=0.0)
    return row_norm(blocks.last_norm, x, member, is_centered=False)


@pytest.mark.parametrize(("kind", "formula"), [("simba", simba), ("flashsac", flashsac)])
def test_blocks_are_their_formula(kind: str, formula: Any) -> None:
    model = made(blocks=kind)
    obs, action = torch.randn(5, 4), torch.rand(5, 2) * 2.0 - 1.0
    body, critics = model.actor.body, model.critic.dense
    assert [tuple(layer.weight.shape) for layer in body.blocks.up] == [(24, 6), (24, 6)]
    values = model.critic(obs, action)
    for row in range(5):
        expected = dense(body.output, formula(body.blocks, obs[row], None), None)
        torch.testing.assert_close(body.forward(obs)[row], expected, rtol=1e-4, atol=1e-5)
        for member in range(2):
            x = formula(critics.blocks, torch.cat((obs[row], action[row])), member)
            expected = dense(critics.output, x, member)[0]
            torch.testing.assert_close(values[member, row], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.critic.first(obs, action), values[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"blocks": "flashsac"}, {"norm": "batch", "unit_weights": True}])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("cls", [SACLearner, DDPGLearner])
def test_lengths_are_kept_by_each_step(
    cls: type[GradientLearner], optimizer: str, options: Any, make_batch: Any
) -> None:
    kind: Any = SoftActorCritic if cls is SACLearner else DeterministicActorCritic
    model = kind([6, 6], action_space=BOX, obs_spec=OBS, seed=0, **options)
    learner = cls(model, optimizer=optimizer, initial_learning_rate=0.05)
    before = copy.deepcopy(dict(model.named_parameters()))
    for i in range(3):
        learner.optimize(i, make_batch(i)._replace(action=torch.rand(16, 2)))
    kept = {name: each for name, each in model.named_parameters() if kept_length(each) is not None}
    assert {name for name in kept if "critic" in name} and {name for name in kept if "actor" in name}
    for name, parameter in kept.items():
        assert not torch.equal(parameter, before[name]), name
        rows = parameter.detach().movedim(1, -1) if name.endswith("weight") else parameter.detach()
        length = 1.0 if name.endswith("weight") else math.sqrt(rows.shape[-1])
        for vector in rows.reshape(-1, rows.shape[-1]):
            assert math.sqrt(sum(float(x) ** 2 for x in vector)) == pytest.approx(length, rel=1e-4), name
    assert not any("hidden" in name or "up" in name for name, _ in model.named_parameters() if name.endswith("bias"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hiddens is \[8, 4\]; with blocks"):
        SoftActorCritic([8, 4], action_space=BOX, blocks="simba")
    with pytest.raises(ValueError, match=r"hiddens is \[\]"):
        SoftActorCritic([8], action_space=BOX, blocks="simba", critic_hiddens=[])
    with pytest.raises(ValueError, match="norm is set, but blocks is simba"):
        SoftActorCritic([8], action_space=BOX, blocks="simba", norm="layer")
    with pytest.raises(ValueError, match="activation is kaf"):
        SoftActorCritic([8], action_space=BOX, blocks="simba", activation={"type": "kaf"})
    with pytest.raises(ValueError, match="unit_weights is true; it needs norm"):
        SoftActorCritic([8], action_space=BOX, unit_weights=True)
    with pytest.raises(ValueError, match="blocks is 'wide'"):
        SoftActorCritic([8], action_space=BOX, blocks="wide")  # type: ignore[arg-type]
