"""CrossQ: both kinds of actions in one batch, no target network, and an actor that moves rarely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.base.types import Batch
from surreal.learner import DDPGLearner, SACLearner
from surreal.learner.off_policy.batches import joint_outputs
from surreal.model import DeterministicActorCritic, DiscreteSoftActorCritic, SoftActorCritic
from surreal.model.norms import BATCH_EPSILON
from tests.unit.learner.off_policy.checks import BOX, HALF, assert_goes_on_bit_for_bit

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
CENTER = torch.tensor([1.0, 5.0])


def model_of(cls: Any = SoftActorCritic, seed: int = 0, **options: Any) -> Any:
    model = cls([6], action_space=BOX, critics=2, norm="batch", obs_spec=OBS, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.critic.named_parameters():
            if name.endswith(("scale", "shift")):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def naive_outputs(critic: Any, obs: Tensor, action: Tensor) -> Tensor:
    """Compute a critic of one hidden layer by the statistics of this batch, unit by unit, [critics, B]."""
    inputs = torch.cat((obs, (action - CENTER) / HALF), 1)
    layer, values = critic.dense.hidden[0], []
    for member in range(2):
        hidden = inputs @ layer.weight[member]
        columns = []
        for unit in range(hidden.shape[1]):
            x = hidden[:, unit]
            x = (x - x.mean()) / (((x - x.mean()) ** 2).mean() + BATCH_EPSILON).sqrt()
            columns.append((x * layer.norm.scale[member, 0, unit] + layer.norm.shift[member, 0, unit]).clamp(min=0.0))
        output = critic.dense.output
        values.append((torch.stack(columns, 1) @ output.weight[member] + output.bias[member]).squeeze(1))
    return torch.stack(values)


def test_both_halves_are_normalized_by_the_statistics_of_both(make_continuous: Any) -> None:
    batch, model, twin = make_continuous(), model_of(), model_of()
    next_action = torch.rand(16, 2) * 2 * HALF + torch.from_numpy(BOX.low)
    outputs, following = joint_outputs(model.critic, model.critic, batch, next_action)
    obs, action = torch.cat((batch.obs, batch.next_obs)), torch.cat((batch.action, next_action))
    expected = naive_outputs(twin.critic, obs, action)
    torch.testing.assert_close(outputs.squeeze(-1), expected[:, :16], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(following.squeeze(-1), expected[:, 16:], rtol=1e-3, atol=1e-4)
    assert not following.requires_grad
    mean = (torch.cat((obs, (action - CENTER) / HALF), 1) @ twin.critic.dense.hidden[0].weight).mean(1, keepdim=True)
    torch.testing.assert_close(model.critic.dense.hidden[0].norm.mean, 0.01 * mean)
    assert model.critic.dense.hidden[0].norm.batches == 1.0
    # The second half changes the statistics of the first, and the gradient knows.
    outputs.square().sum().backward()  # type: ignore[no-untyped-call]
    expected[:, :16].square().sum().backward()  # type: ignore[no-untyped-call]
    for mine, naive in zip(model.critic.parameters(), twin.critic.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, naive.grad, rtol=1e-3, atol=1e-4)


def test_a_target_network_normalizes_both_halves_by_its_own_statistics(make_continuous: Any) -> None:
    batch, model, other = make_continuous(), model_of(), model_of(seed=5)
    next_action = batch.action.flip(0)
    outputs, following = joint_outputs(model.critic, other.critic, batch, next_action)
    obs, action = torch.cat((batch.obs, batch.next_obs)), torch.cat((batch.action, next_action))
    mine, theirs = naive_outputs(model.critic, obs, action), naive_outputs(other.critic, obs, action)
    torch.testing.assert_close(outputs.squeeze(-1), mine[:, :16], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(following.squeeze(-1), theirs[:, 16:], rtol=1e-3, atol=1e-4)


def test_the_targets_of_sac_come_from_its_own_critics(make_continuous: Any) -> None:
    batch, twin = make_continuous(), model_of()
    learner = SACLearner(model_of(), target_update_tau=None, joint_batch=True, temperature=0.3)
    learner.prepare(batch)
    _, target = learner.estimate(batch, learner._noise.of(0))
    action, log_probability = twin.draw(batch.next_obs, learner._noise.of(0))
    values = naive_outputs(twin.critic, torch.cat((batch.obs, batch.next_obs)), torch.cat((batch.action, action)))
    soft = values[:, 16:].amin(0) - 0.3 * log_probability
    torch.testing.assert_close(
        target.squeeze(-1), (batch.reward + batch.discount * soft).detach(), rtol=1e-3, atol=1e-3
    )


def test_the_targets_of_td3_come_from_its_own_actor_and_critics(make_continuous: Any) -> None:
    batch, twin = make_continuous(), model_of(DeterministicActorCritic)
    learner = DDPGLearner(model_of(DeterministicActorCritic), target_update_tau=None, joint_batch=True)
    learner.prepare(batch)
    _, target = learner.estimate(batch)
    action = twin.actor(batch.next_obs)
    values = naive_outputs(twin.critic, torch.cat((batch.obs, batch.next_obs)), torch.cat((batch.action, action)))
    expected = batch.reward + batch.discount * values[:, 16:].amin(0)
    torch.testing.assert_close(target.squeeze(-1), expected.detach(), rtol=1e-3, atol=1e-3)


def test_the_policy_and_the_temperature_move_in_every_third_update(make_continuous: Any) -> None:
    learner = SACLearner(model_of(), policy_delay=3, metrics_interval=1)
    learner.prepare(make_continuous())
    moved = []
    for i in range(6):
        before = {name: tensor.clone() for name, tensor in learner.state_dict()["tensors"].items()}
        metrics = learner.optimize(i, make_continuous(i))
        after = learner.state_dict()["tensors"]
        changed = {name.partition("/")[0] for name in before if not torch.equal(before[name], after[name])}
        parts = {
            name for name in before if name.startswith("model/actor") and not torch.equal(before[name], after[name])
        }
        moved.append((bool(parts), "temperature" in changed, "target" in changed, "policy_loss" in metrics))
    assert moved == [(i % 3 == 2, i % 3 == 2, True, i >= 2) for i in range(6)]


@pytest.mark.parametrize("learner", [SACLearner, DDPGLearner])
def test_several_updates_on_a_batch_are_those_on_copies_of_it(learner: Any, make_continuous: Any) -> None:
    options: dict[str, Any] = {"policy_delay": 3} | ({"smoothing_sigma": 0.2} if learner is DDPGLearner else {})
    model = {SACLearner: model_of, DDPGLearner: lambda: DeterministicActorCritic([6], action_space=BOX, seed=0)}[
        learner
    ]
    several, one = learner(model(), updates_per_batch=2, **options), learner(model(), **options)
    batches = [make_continuous(seed) for seed in range(3)]
    for i, batch in enumerate(batches):
        several.optimize(i, batch)
        for number in (2 * i, 2 * i + 1):
            one.optimize(number, batch)
    assert (several.updates, one.updates) == (3, 6)
    assert several.takes_several_steps and not one.takes_several_steps
    found, expected = several.state_dict()["tensors"], one.state_dict()["tensors"]
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("delay", [1, 2])
def test_without_a_target_network_checkpoints_have_none_and_learning_goes_on(
    make_continuous: Any, tmp_path: Any, delay: int
) -> None:
    options: dict[str, Any] = {"target_update_tau": None, "joint_batch": True, "policy_delay": delay, "beta1": 0.5}

    def make() -> Any:
        return SACLearner(model_of(), **options)

    assert_goes_on_bit_for_bit(make, [make_continuous(seed) for seed in range(8)], tmp_path)
    learner = make()
    learner.optimize(0, make_continuous())
    assert not any(name.startswith("target") for name in learner.state_dict()["tensors"])


def test_nested_observations_are_joined_leaf_by_leaf() -> None:
    def obs(shift: float) -> Any:
        return {"b": torch.arange(8.0).view(4, 2) + shift, "a": (torch.ones(4, 1) * shift,)}

    spec = ObsSpec.from_obs({"b": np.zeros(2, np.float32), "a": (np.zeros(1, np.float32),)})
    model: Any = SoftActorCritic([6], action_space=BOX, obs_spec=spec, seed=0)
    info: Any = None
    batch = Batch(obs(0.0), torch.ones(4, 2), torch.zeros(4), torch.ones(4), obs(3.0), {}, info)
    outputs, following = joint_outputs(model.critic, model.critic, batch, torch.zeros(4, 2))
    torch.testing.assert_close(outputs, model.critic.outputs(batch.obs, torch.ones(4, 2)))
    torch.testing.assert_close(following, model.critic.outputs(batch.next_obs, torch.zeros(4, 2)))


def test_discrete_actions_have_no_joint_batch() -> None:
    model = DiscreteSoftActorCritic([6], action_space=spaces.Discrete(2))
    with pytest.raises(ValueError, match="joint_batch is true; it needs a SoftActorCritic"):
        SACLearner(model, joint_batch=True)
