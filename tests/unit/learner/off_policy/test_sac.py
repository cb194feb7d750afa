"""Soft actor-critic: one update by the formulas, its gradients, the temperature, and what checkpoints keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.types import Batch
from surreal.learner import SACLearner
from surreal.model import DeterministicActorCritic, DiscreteSoftActorCritic, SoftActorCritic
from tests.unit.learner.off_policy.checks import (
    BOX,
    HALF,
    assert_goes_on_bit_for_bit,
    finite_differences,
    one_step_task,
    tensors_of,
    transitions,
)

MakeBatch = Callable[..., Batch]
DISCRETE = spaces.Discrete(2)


def made(space: Any = BOX, hiddens: tuple[int, ...] = (8,), model: dict[str, Any] | None = None, **args: Any) -> Any:
    cls = SoftActorCritic if space is BOX else DiscreteSoftActorCritic
    network = cls(hiddens, action_space=space, seed=0, **(model or {}))
    return SACLearner(network, None, gradients_norm_clipping=None, **args)


def first_noise(learner: SACLearner) -> torch.Generator:
    """What the learner draws by in its first update."""
    return learner._noise.of(0)


def test_one_update_is_the_formula(make_continuous: MakeBatch) -> None:
    batch = make_continuous(weight=0.5)
    learner = made(temperature=0.3, target_update_tau=0.1, initial_learning_rate=1e-2)
    learner.optimize(0, batch)
    reference, twin = made().model, made().model
    for model in (reference, twin):
        model(batch.obs)
    generator = first_noise(learner)
    rate = {"lr": 1e-2}
    critic = torch.optim.Adam(reference.critic.parameters(), **rate)
    actor = torch.optim.Adam(reference.actor.parameters(), **rate)

    policy = twin(batch.next_obs)
    next_action, next_log = policy.draw(generator)
    values = twin.critic(batch.next_obs, next_action)
    loss = torch.zeros(())
    for row in range(16):
        log_scaled = next_log[row] + math.log(2.0) + math.log(5.0)
        soft = torch.minimum(values[0, row], values[1, row]) - 0.3 * log_scaled
        target = (batch.reward[row] + batch.discount[row] * soft).detach()
        for member in range(2):
            loss = loss + 0.5 * (reference.critic(batch.obs, batch.action)[member, row] - target) ** 2 / 16
    loss.backward()  # type: ignore[no-untyped-call]
    critic.step()
    action, log = reference(batch.obs).draw(generator)
    actor.zero_grad()
    log_scaled = log + math.log(2.0) + math.log(5.0)
    (0.3 * log_scaled - reference.critic(batch.obs, action).amin(0)).mean().backward()
    actor.step()
    for name, tensor in learner.model.tensors().items():
        torch.testing.assert_close(tensor, reference.tensors()[name], rtol=1e-3, atol=1e-5)
    for name, tensor in learner.target.network.tensors().items():
        followed = twin.critic.tensors()[name].lerp(reference.critic.tensors()[name], 0.1)
        torch.testing.assert_close(tensor, followed, rtol=1e-3, atol=1e-5)
    # Adam's first step is the learning rate, against the sign of (entropy - target entropy).
    entropy = -log_scaled.mean().item()
    expected = math.log(0.3) - math.copysign(1e-2, entropy + 2.0)
    assert learner.temperature.log_value.item() == pytest.approx(expected, abs=1e-4)
    assert learner.reading["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert learner.reading["loss"] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_gradient_of_the_policy_is_that_of_finite_differences(
    make_batch: MakeBatch, make_continuous: MakeBatch, space: Any
) -> None:
    batch = make_continuous() if space is BOX else make_batch()
    smooth = {"activation": "tanh", "critics": 1}
    learner = made(space, hiddens=(3,), model=smooth, initial_learning_rate=1e-30, learn_temperature=False)
    learner.optimize(0, batch)
    model = learner.model

    def loss() -> Tensor:
        generator = first_noise(learner)
        model.expect(model.critic, batch.next_obs, generator)  # the target's draw comes first
        outputs, log_probability = model.expect(model.critic, batch.obs, generator)
        return (log_probability - outputs.amin((0, 2))).mean()

    parameters = dict(model.actor.named_parameters())
    expected = finite_differences(loss, parameters.values())
    for (name, parameter), slope in zip(parameters.items(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, slope, rtol=2e-2, atol=5e-4, msg=name)


def test_the_policys_loss_does_not_change_the_critic(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    frozen = made(initial_learning_rate=1e-30, critic_learning_rate=1e-2, temperature_learning_rate=1e-30)
    learning = made(initial_learning_rate=1e-2)
    for learner in (frozen, learning):
        learner.optimize(0, batch)
    for name, tensor in frozen.model.critic.tensors().items():
        torch.testing.assert_close(tensor, learning.model.critic.tensors()[name])


@pytest.mark.parametrize(("target_entropy", "is_rising"), [(5.0, True), (-50.0, False)])
def test_temperature_rises_while_there_is_too_little_entropy(
    make_continuous: MakeBatch, target_entropy: float, is_rising: bool
) -> None:
    learner = made(target_entropy=target_entropy)
    learner.optimize(0, make_continuous())
    assert (learner.temperature.value.item() > 1.0) == is_rising


def test_a_fixed_temperature_stays(make_continuous: MakeBatch) -> None:
    learner = made(temperature=0.2, learn_temperature=False)
    for i in range(3):
        learner.optimize(i, make_continuous(i))
    assert learner.temperature.value.item() == pytest.approx(0.2)


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_a_restored_learner_goes_on_bit_for_bit(
    make_batch: MakeBatch, make_continuous: MakeBatch, tmp_path: Path, space: Any
) -> None:
    make = make_continuous if space is BOX else make_batch
    assert_goes_on_bit_for_bit(lambda: made(space), [make(seed) for seed in range(10)], tmp_path)


def test_checkpoints_have_temperature_targets_and_optimizers(make_continuous: MakeBatch) -> None:
    learner = made()
    learner.optimize(0, make_continuous())
    tensors = tensors_of(learner)
    groups = {"actor", "critic", "temperature"}
    parts = {"model", "target", "temperature", *(f"optimizer-{group}" for group in groups)}
    assert {name.split("/")[0] for name in tensors} == parts
    assert tensors["target/dense.output.weight"].shape[0] == 2


def test_updates_draw_different_noise_and_a_seed_repeats_it() -> None:
    learner, same, other = made(seed=1), made(seed=1), made(seed=2)
    first = torch.rand(3, generator=learner._noise.of(0))
    assert torch.equal(first, torch.rand(3, generator=same._noise.of(0)))
    assert not torch.equal(first, torch.rand(3, generator=other._noise.of(0)))
    assert not torch.equal(first, torch.rand(3, generator=learner._noise.of(1)))


@pytest.mark.slow
def test_solves_a_one_step_task_with_the_entropy_it_aims_at() -> None:
    """Reward -|a - a*|^2, where a* depends on the observation: the policy centres there."""
    generator = torch.Generator().manual_seed(0)
    rates = {"initial_learning_rate": 5e-3, "temperature_learning_rate": 4e-2}
    learner = made(hiddens=(32, 32), temperature=0.1, metrics_interval=1, **rates)
    best = torch.tensor([0.5, 5.0])
    for i in range(350):
        learner.optimize(i, one_step_task(best, generator))
    obs = torch.rand(256, 4, generator=generator) - 0.5
    error = (learner.model(obs).mode() - best - obs[:, :2]) / HALF
    assert error.square().mean().sqrt().item() < 0.15
    assert learner.reading["entropy"] == pytest.approx(-2.0, abs=0.5)


def test_discrete_policy_of_a_one_step_task_is_the_softmax_of_rewards() -> None:
    """With a fixed temperature, the best policy is known: p(a) ~ exp(reward / temperature)."""
    generator = torch.Generator().manual_seed(0)
    learner = made(DISCRETE, (32,), initial_learning_rate=1e-2, temperature=0.5, learn_temperature=False)
    for i in range(250):
        obs = torch.rand(128, 4, generator=generator)
        action = torch.randint(2, (128,), generator=generator)
        learner.optimize(i, transitions(obs, action, torch.where(action == 1, 1.0, 0.5)))
    probability = learner.model(torch.rand(64, 4, generator=generator)).logits.exp()[:, 1]
    torch.testing.assert_close(probability, torch.full((64,), 1 / (1 + math.exp(-1.0))), atol=0.04, rtol=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature_learning_rate": 0.0}, "temperature_learning_rate is 0.0"),
        ({"critic_learning_rate": -1.0}, "critic_learning_rate is -1.0"),
        ({"target_update_tau": 2.0}, "target_update_tau is 2.0"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_another_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="the model is a DeterministicActorCritic; it must be a SoftActorCritic"):
        SACLearner(DeterministicActorCritic(action_space=BOX))


def test_a_target_sigma_is_the_entropy_of_the_normal_distribution_with_it() -> None:
    learner = made(target_sigma=0.15)
    components = learner.model.bounds.num_components
    normal = torch.distributions.Normal(torch.zeros(components), 0.15)
    assert learner.target_entropy == pytest.approx(float(normal.entropy().sum()), rel=1e-5)
    with pytest.raises(ValueError, match=r"target_sigma is 0\.15; it needs a SoftActorCritic"):
        made(target_sigma=0.15, target_entropy=-1.0)
