"""DDPG and TD3: one update by the formulas, its gradients, and what checkpoints keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.types import Batch
from surreal.learner import DDPGLearner
from surreal.model import DeterministicActorCritic, QFunction
from tests.unit.learner.off_policy.checks import (
    BOX,
    HALF,
    assert_goes_on_bit_for_bit,
    finite_differences,
    one_step_task,
    tensors_of,
)

MakeBatch = Callable[..., Batch]
TD3 = {"policy_delay": 2, "smoothing_sigma": 0.2}


def made(critics: int = 1, hiddens: tuple[int, ...] = (8,), model: dict[str, Any] | None = None, **args: Any) -> Any:
    network = DeterministicActorCritic(hiddens, action_space=BOX, critics=critics, seed=0, **(model or {}))
    return DDPGLearner(network, None, gradients_norm_clipping=None, **args)


def changed(learner: DDPGLearner, before: dict[str, Tensor]) -> set[str]:
    """First two names of what changed: model/actor, target/critic."""
    now = tensors_of(learner)
    names = {name for name in before if not torch.equal(before[name], now[name])}
    return {".".join(name.split(".")[:1]) for name in names}


def test_one_update_is_the_formula(make_continuous: MakeBatch) -> None:
    batch = make_continuous(weight=0.5)
    learner = made(target_update_tau=0.1, initial_learning_rate=1e-2, critic_learning_rate=3e-2)
    learner.optimize(0, batch)
    reference, twin = made().model, made().model
    for model in (reference, twin):
        model(batch.obs)
    actor = torch.optim.Adam(reference.actor.parameters(), lr=1e-2)
    critic = torch.optim.Adam(reference.critic.parameters(), lr=3e-2)
    loss = torch.zeros(())
    for row in range(16):
        obs, next_obs = batch.obs[row : row + 1], batch.next_obs[row : row + 1]
        target = batch.reward[row] + batch.discount[row] * twin.critic(next_obs, twin.actor(next_obs))[0, 0].detach()
        loss = loss + 0.5 * (target - reference.critic(obs, batch.action[row : row + 1])[0, 0]) ** 2 / 16
    loss.backward()  # type: ignore[no-untyped-call]
    critic.step()
    actor.zero_grad()
    (-reference.critic(batch.obs, reference.actor(batch.obs))[0].mean()).backward()
    actor.step()
    for name, tensor in learner.model.tensors().items():
        ours = reference.tensors()[name]
        torch.testing.assert_close(tensor, ours, rtol=1e-3, atol=1e-5)
        followed = learner.target.network.tensors()[name]
        torch.testing.assert_close(followed, twin.tensors()[name].lerp(ours, 0.1), rtol=1e-3, atol=1e-5)
    assert learner.reading["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_gradient_of_the_policy_is_that_of_finite_differences(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    learner = made(critics=2, hiddens=(3,), model={"activation": "tanh"}, initial_learning_rate=1e-30)
    learner.optimize(0, batch)
    model = learner.model

    def loss() -> Tensor:
        return -model.critic(batch.obs, model.actor(batch.obs))[0].mean()

    parameters = dict(model.actor.named_parameters())
    expected = finite_differences(loss, parameters.values())
    for (name, parameter), slope in zip(parameters.items(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, slope, rtol=2e-2, atol=2e-4, msg=name)


def test_the_policys_loss_does_not_change_the_critic(make_continuous: MakeBatch) -> None:
    """Two learners whose actors differ, but not their targets: their critics learn the same."""
    batch = make_continuous()
    frozen, learning = made(initial_learning_rate=1e-30, critic_learning_rate=1e-2), made(initial_learning_rate=1e-2)
    for learner in (frozen, learning):
        learner.optimize(0, batch)
    for name, tensor in frozen.model.critic.tensors().items():
        torch.testing.assert_close(tensor, learning.model.critic.tensors()[name])
    assert not torch.equal(frozen.model(batch.obs), learning.model(batch.obs))


def test_smoothing_reaches_the_targets_of_both_critics(make_continuous: MakeBatch) -> None:
    """An ancestor smoothed the action of one critic only."""
    batch = make_continuous(rows=256)
    learner = made(critics=2, smoothing_sigma=0.3, smoothing_clip=0.4)
    learner.optimize(0, batch)
    asked: list[Tensor] = []
    critic = learner.target.network.critic
    forward, outputs = critic.forward, critic.outputs
    critic.outputs = lambda obs, action: (asked.append(action), outputs(obs, action))[1]
    target = learner.estimate(batch)[1].squeeze(1)
    (action,) = asked
    values = forward(batch.next_obs, action)
    torch.testing.assert_close(target, batch.reward + batch.discount * torch.minimum(values[0], values[1]))
    plain = learner.target.network.actor(batch.next_obs).detach()
    noise = (action - plain) / HALF
    assert noise.abs().max().item() == pytest.approx(0.4, abs=1e-5)
    inside = noise.abs() < 0.39
    assert noise[inside].std().item() == pytest.approx(0.2, abs=0.03)  # of N(0, 0.3) cut at 1.3 sigma
    assert (action >= torch.from_numpy(BOX.low)).all()
    assert (action <= torch.from_numpy(BOX.high)).all()
    # Both critics learn towards the one target.
    q, _ = learner.estimate(batch)
    assert q.shape == (2, 256, 1)


def test_the_smaller_of_two_values_counts(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    learner = made(critics=2)
    learner.optimize(0, batch)
    target = learner.estimate(batch)[1].squeeze(1)
    values = learner.target.network.critic(batch.next_obs, learner.target.network.actor(batch.next_obs))
    torch.testing.assert_close(target, batch.reward + batch.discount * values.amin(0))
    assert (values[0] < values[1]).any()
    assert (values[0] > values[1]).any()


def test_policy_and_targets_wait_for_the_delay(make_continuous: MakeBatch) -> None:
    learner = made(critics=2, policy_delay=3)
    learner.optimize(0, make_continuous(0))
    for update in range(1, 7):
        before = tensors_of(learner)
        learner.optimize(update, make_continuous(update))
        parts = {name for name in changed(learner, before) if not name.startswith("optimizer")}
        is_due = (update + 1) % 3 == 0
        assert parts == (
            {"model/actor", "model/critic", "target/actor", "target/critic"} if is_due else {"model/critic"}
        )


def test_a_terminal_state_is_not_bootstrapped_and_a_truncated_one_is(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    learner = made()
    learner.optimize(0, batch)
    ended = batch._replace(discount=torch.zeros(16))
    torch.testing.assert_close(learner.estimate(ended)[1].squeeze(1), batch.reward)
    cut = batch._replace(discount=torch.full((16,), 0.99))
    assert (learner.estimate(cut)[1].squeeze(1) != batch.reward).all()


def test_l2_keeps_the_critics_weights_smaller_and_leaves_the_actor(make_continuous: MakeBatch) -> None:
    sizes = []
    for coefficient in (0.0, 1.0):
        learner = made(l2_coeff=coefficient, initial_learning_rate=1e-2)
        for i in range(30):
            learner.optimize(i, make_continuous(i))
        sizes.append(sum(layer.weight.norm().item() for layer in learner.model.critic.dense.hidden))
    assert sizes[1] < 0.7 * sizes[0]


def test_priorities_are_the_mean_errors_of_the_critics(make_continuous: MakeBatch) -> None:
    class FakeReplay:
        global_step, wants_priorities = 0, True

        def __init__(self) -> None:
            self.calls: list[Any] = []

        def update_priorities(self, sample_info: Any, priorities: Any) -> None:
            self.calls.append(priorities)

    batch, replay = make_continuous(), FakeReplay()
    learner = made(critics=2)
    learner.optimize(0, batch)
    q, target = learner.estimate(batch)
    learner.replay = replay
    learner.optimize(1, batch)
    np.testing.assert_allclose(replay.calls[0], (target - q).detach().abs().mean((0, 2)), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"critics": 2, **TD3}])
def test_a_restored_learner_goes_on_bit_for_bit(
    make_continuous: MakeBatch, tmp_path: Path, options: dict[str, Any]
) -> None:
    batches = [make_continuous(seed) for seed in range(10)]
    assert_goes_on_bit_for_bit(lambda: made(**options), batches, tmp_path)


def test_checkpoints_have_both_critics_the_targets_and_the_optimizers(make_continuous: MakeBatch) -> None:
    """An ancestor forgot the second critic."""
    learner = made(critics=2)
    learner.optimize(0, make_continuous())
    tensors = tensors_of(learner)
    assert tensors["model/critic.dense.output.weight"].shape[0] == 2
    assert tensors["target/critic.dense.output.weight"].shape[0] == 2
    assert tensors["optimizer-critic/dense.output.weight/exp_avg"].shape[0] == 2
    assert {name.split("/")[0] for name in tensors} == {"model", "target", "optimizer-actor", "optimizer-critic"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"critic_learning_rate": 1e-2}, {"critics": 2, **TD3, "critic_learning_rate": 1e-2}]
)
def test_solves_a_one_step_task(options: dict[str, Any]) -> None:
    """Reward -|a - a*|^2, where a* depends on the observation: the policy finds it."""
    generator = torch.Generator().manual_seed(0)
    learner = made(hiddens=(32, 32), initial_learning_rate=3e-3, **options)
    best = torch.tensor([0.5, 7.0])
    for i in range(500):
        learner.optimize(i, one_step_task(best, generator))
    obs = torch.rand(256, 4, generator=generator) - 0.5
    error = (learner.model(obs) - best - obs[:, :2]) / HALF
    assert error.square().mean().sqrt().item() < 0.12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy_delay": 0}, "policy_delay is 0"),
        ({"smoothing_sigma": -0.1}, "smoothing_sigma is -0.1"),
        ({"smoothing_clip": 0.0}, "smoothing_clip is 0.0"),
        ({"l2_coeff": -1.0}, "l2_coeff is -1.0"),
        ({"target_update_tau": 0.0}, "target_update_tau is 0.0"),
        ({"critic_learning_rate": 0.0}, "critic_learning_rate is 0.0"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_another_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="the model is a QFunction; it must be a DeterministicActorCritic"):
        DDPGLearner(QFunction(action_space=2))
