"""Interpolated policy gradient: losses and targets against naive loops, gradients against those it interpolates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.types import TrajectoryBatch
from surreal.learner import IPGLearner
from surreal.learner.on_policy.ipg import Steps, find_steps, following
from surreal.learner.on_policy.minibatches import minibatches
from surreal.learner.on_policy.policy_losses import interpolated_loss, policy_gradient_loss
from tests.unit.learner.off_policy.checks import assert_goes_on_bit_for_bit, finite_differences

if TYPE_CHECKING:
    from surreal.model import ActorCritic
    from tests.unit.learner.on_policy.conftest import MakeModel, Mix, Play

SPACES: dict[str, spaces.Space[Any]] = {"discrete": spaces.Discrete(3), "box": spaces.Box(-2.0, 2.0, (2,))}
PLAIN: dict[str, Any] = {"normalize_advantage": False, "critic_hidden_sizes": [4], "gae_lambda": 1.0}


def ready(model: ActorCritic, batch: TrajectoryBatch, **options: Any) -> IPGLearner:
    """A learner that has its critics, and has not learned."""
    learner = IPGLearner(model, **options)
    learner.prepare(batch)
    return learner


def policy_parameters(model: ActorCritic) -> list[Tensor]:
    return [tensor for name, tensor in model.named_parameters() if not name.startswith("value")]


def test_the_loss_equals_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    log_probability, signal, expected = (torch.tensor(rng.normal(size=(4, 3))) for _ in range(3))
    on, sampled = torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    on[:, 0], sampled[:, 1:] = 1.0, 1.0
    on[2, 0] = 0.0
    found = interpolated_loss(log_probability, signal, on, expected, sampled, share=0.3, critic_weight=0.3)
    fresh = [float(log_probability[t, 0] * signal[t, 0]) for t in (0, 1, 3)]
    replayed = [float(expected[t, b]) for t in range(4) for b in (1, 2)]
    assert float(found) == pytest.approx(-0.7 * np.mean(fresh) - 0.3 * np.mean(replayed))
    with pytest.raises(ValueError, match="one shape"):
        interpolated_loss(log_probability, signal[:, :1], on, expected, sampled, share=0.3, critic_weight=0.3)


@pytest.mark.parametrize("space", SPACES)
def test_targets_equal_a_naive_loop(space: str, make_model: MakeModel, mix: Mix) -> None:
    """r, where the episode terminated; else r + gamma E_p Q'(s'), where it was truncated too."""
    model = make_model(space=SPACES[space])
    batch = mix(model)
    assert batch.terminated.any()
    assert batch.truncated.any()
    learner = ready(model, batch, **PLAIN)
    (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
    q, target = learner.estimate(part, following(part, batch, learner.next_policy(batch)), learner._noise.of(0))
    assert q.requires_grad
    assert not target.requires_grad
    assert q.shape == (2, len(target))
    drawn = learner._noise.of(0)
    policy = learner.next_policy(batch)[part.index]
    action = policy.sample(drawn)
    for n, (t, b) in enumerate(zip(*(index.tolist() for index in part.index), strict=True)):
        obs = batch.obs[t + 1, b][None]
        with torch.no_grad():
            if space == "discrete":
                values = learner.critics.critics.all_actions(obs)[:, 0].min(0).values  # type: ignore[operator]
                value = sum(float(policy.logits[n, a].exp() * values[a]) for a in range(3))  # type: ignore[attr-defined]
            else:
                value = float(learner.critics.critics(obs, action[n][None])[:, 0].min())
        expected = float(batch.reward[t, b]) + 0.5 * (not batch.terminated[t, b]) * value
        assert float(target[n]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_without_interpolation_the_gradient_is_that_of_fresh_steps(make_model: MakeModel, mix: Mix) -> None:
    model = make_model(value_hiddens=[4])
    batch = mix(model)
    learner = ready(model, batch, interpolation_weight=0.0, **PLAIN)
    steps, parameters = learner.evaluate(batch, *find_steps(batch)), policy_parameters(model)
    ours = torch.autograd.grad(learner.policy_loss(steps), parameters, retain_graph=True)
    plain = policy_gradient_loss(steps.log_probability, steps.advantage, steps.is_on_policy)
    assert 0 < steps.is_on_policy.sum() < len(steps.is_on_policy)
    for found, expected in zip(ours, torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(found, expected)


def test_by_critics_alone_continuous_policies_climb_q_of_their_mean(make_model: MakeModel, mix: Mix) -> None:
    model = make_model(space=SPACES["box"], value_hiddens=[4])
    batch = mix(model)
    learner = ready(model, batch, interpolation_weight=1.0, **PLAIN)
    parameters = policy_parameters(model)
    ours = torch.autograd.grad(
        learner.policy_loss(learner.evaluate(batch, *find_steps(batch))),
        parameters,
        allow_unused=True,
        materialize_grads=True,
    )
    is_replayed = (batch.mask * ~batch.extras["is_on_policy"]) > 0
    obs = batch.obs[:-1][is_replayed]
    climbed = -learner.critics.critics(obs, model(obs).policy.mode()).amin(0).mean()
    theirs = torch.autograd.grad(climbed, parameters, allow_unused=True, materialize_grads=True)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("space", SPACES)
def test_gradients_are_those_of_finite_differences(space: str, make_model: MakeModel, mix: Mix) -> None:
    model = make_model((4,), space=SPACES[space], value_hiddens=[4])
    batch = mix(model, rows=5, columns=4)
    learner = ready(model, batch, interpolation_weight=0.4, **PLAIN)

    def loss() -> Tensor:
        return learner.policy_loss(learner.evaluate(batch, *find_steps(batch)))

    parameters = policy_parameters(model)
    for ours, theirs in zip(torch.autograd.grad(loss(), parameters), finite_differences(loss, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-3)  # of float32, by steps of 0.01


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_with_right_critics_a_control_variate_leaves_the_policy_gradient_as_it_is(
    share: float, make_model: MakeModel, mix: Mix
) -> None:
    """One state, all actions weighed by their probability: the gradient is that of the expected reward."""
    model, worth = make_model(), torch.tensor([1.0, -2.0, 0.5])
    learner = ready(model, mix(model), interpolation_weight=share, control_variate=True, **PLAIN)
    learner.critics.critics.all_actions = lambda obs: worth.expand(2, len(obs), 3)  # type: ignore[method-assign]
    obs = torch.tensor([[0.3, -0.2, 0.9]]).expand(3, 3)
    policy, value = model(obs)
    probability = policy.logits.exp()[0]
    action = torch.arange(3)
    expected = (probability * worth).sum()
    steps = Steps(
        obs=obs,
        policy=policy,
        log_probability=policy.log_probability(action),
        action=action,
        value=value,
        advantage=(worth - expected).detach(),
        is_on_policy=probability.detach(),
        is_fresh=probability.detach(),
        is_sampled=torch.ones(3),
    )
    parameters = policy_parameters(model)
    ours = torch.autograd.grad(-learner.policy_loss(steps), parameters, retain_graph=True)
    for found, exact in zip(ours, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-6)


def test_the_line_through_the_mean_is_the_continuous_control_variate(make_model: MakeModel, mix: Mix) -> None:
    """Against a naive slope, by finite differences of each component of the action."""
    model = make_model(space=SPACES["box"])
    batch = mix(model, rows=3, columns=2)
    learner = ready(model, batch, control_variate=True, **PLAIN)
    steps = learner.evaluate(batch, *find_steps(batch))
    found = learner.critics.advantage(steps.obs, steps.policy, steps.action)
    assert not found.requires_grad

    def q(n: int, action: Tensor) -> float:
        return float(learner.critics.critics(steps.obs[n : n + 1], action[None]).detach().min())

    for n, mean in enumerate(steps.policy.mode().detach()):
        expected = 0.0
        for k in range(2):
            shift = torch.zeros(2)
            shift[k] = 1e-2
            slope = (q(n, mean + shift) - q(n, mean - shift)) / 2e-2
            expected += slope * float(steps.action[n, k] - mean[k])
        assert float(found[n]) == pytest.approx(expected, rel=2e-2, abs=2e-3)


def test_what_was_replayed_gives_no_likelihood_gradient_and_no_value_target(make_model: MakeModel, mix: Mix) -> None:
    """Their rewards and probabilities are of another policy."""
    parameters = []
    for scale in (1.0, 50.0):
        model = make_model()
        batch = mix(model)
        reward = torch.where(batch.extras["is_on_policy"], batch.reward, scale * batch.reward)
        learner = IPGLearner(model, interpolation_weight=0.0)
        learner.optimize(0, batch._replace(reward=reward))
        parameters.append(model.tensors())
    for name, tensor in parameters[0].items():
        assert torch.equal(tensor, parameters[1][name]), name


def test_filters_count_a_step_when_it_is_fresh_and_not_when_it_is_replayed(make_model: MakeModel, mix: Mix) -> None:
    model = make_model(normalize_obs=True, normalize_rewards=True)
    learner = IPGLearner(model)
    fresh = 0.0
    for i in range(3):
        batch = mix(model, seed=i)
        fresh += float((batch.mask * batch.extras["is_on_policy"]).sum())
        learner.optimize(i, batch)
    assert model.obs_filter is not None
    assert model.return_filter is not None
    (moments,) = model.obs_filter.moments
    assert moments.count == fresh
    assert model.return_filter.moments.count == fresh


def test_what_stands_in_rows_without_a_step_does_not_matter(make_model: MakeModel, mix: Mix) -> None:
    parameters = []
    for number in (0, 1):
        model = make_model()
        batch = mix(model)
        batch.action[batch.mask == 0.0] = number
        learner = IPGLearner(model, interpolation_weight=0.5)
        learner.optimize(0, batch)
        parameters.append({**model.tensors(), **learner.critics.critics.tensors()})
    for name, tensor in parameters[0].items():
        assert torch.equal(tensor, parameters[1][name]), name


def test_illegal_actions_are_not_bootstrapped_from(make_model: MakeModel, mix: Mix) -> None:
    model = make_model()
    batch = mix(model)
    mask = torch.zeros(*batch.mask.shape, 3, dtype=torch.bool)
    mask[..., 1] = True
    mask[0] = False  # as at an episode's end: all are legal
    policy = IPGLearner(model).next_policy(batch._replace(extras={**batch.extras, "next_action_mask": mask}))
    probability = policy.logits.exp()  # type: ignore[attr-defined]
    assert (probability[1:, :, 1] == 1.0).all()
    assert (probability[0] < 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("share", "control_variate"), [(0.3, False), (0.3, True), (1.0, False)])
@pytest.mark.parametrize("space", SPACES)
def test_learns_what_is_right(
    space: str, share: float, control_variate: bool, make_model: MakeModel, mix: Mix, play: Play
) -> None:
    model = make_model(space=SPACES[space], log_sigma=-1.0)
    learner = IPGLearner(
        model,
        interpolation_weight=share,
        control_variate=control_variate,
        initial_learning_rate=0.01,
        target_update_tau=0.05,
    )
    before = mean_reward(play(model, seed=1000))
    for i in range(60):
        learner.optimize(i, mix(model, seed=i, columns=16))
    after = mean_reward(play(model, seed=1000))
    best = 1.0 if space == "discrete" else 0.0
    assert best - after < 0.6 * (best - before)


def mean_reward(batch: TrajectoryBatch) -> float:
    return float(batch.reward.sum() / batch.mask.sum())


@pytest.mark.parametrize("space", SPACES)
def test_a_restored_learner_goes_on_bit_for_bit(space: str, make_model: MakeModel, mix: Mix, tmp_path: Path) -> None:
    source = make_model(space=SPACES[space])
    batches: list[Any] = [mix(source, seed=seed) for seed in range(4)]
    assert_goes_on_bit_for_bit(
        lambda: IPGLearner(make_model(space=SPACES[space], normalize_obs=True)), batches, tmp_path
    )


def test_what_it_cannot_learn_is_refused(make_model: MakeModel, mix: Mix) -> None:
    with pytest.raises(ValueError, match="without use_lstm"):
        IPGLearner(make_model(use_lstm=True))
    with pytest.raises(ValueError, match="interpolation_weight is"):
        IPGLearner(make_model(), interpolation_weight=1.5)
    model = make_model(space=spaces.MultiBinary(2))
    with pytest.raises(ValueError, match="use a vector Box"):
        IPGLearner(model).optimize(0, mix(model))
