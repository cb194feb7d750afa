"""TRPO: the solver against a dense one, and what a step promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.learner import TRPOLearner
from surreal.learner.advantages import generalised_advantages
from surreal.learner.on_policy.evaluating import make_targets
from surreal.learner.on_policy.minibatches import concatenate, minibatches
from surreal.learner.on_policy.trust_region import conjugate_gradient, shorter_fraction

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play


def test_conjugate_gradients_find_what_a_dense_solver_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, generator=generator)
    matrix, right = root @ root.T + torch.eye(12), torch.randn(12, generator=generator)
    found = conjugate_gradient(lambda vector: matrix @ vector, right, iterations=40)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-3, atol=1e-4)
    assert not conjugate_gradient(lambda vector: matrix @ vector, torch.zeros(12), iterations=5).any()


@pytest.mark.parametrize("linesearch_type", ["Origin", "Adaptive"])
@pytest.mark.parametrize("subtype", ["trpo-d1", "trpo-d2"])
@pytest.mark.parametrize("max_kl", [1e-3, 0.02])
@pytest.mark.parametrize("recurrent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_improves_the_surrogate_and_stays_in_the_trust_region(
    recurrent: bool, max_kl: float, subtype: str, linesearch_type: str, make_model: MakeModel, play: Play
) -> None:
    model = make_model(value_hiddens=[8], use_lstm=recurrent, lstm_size=4)
    learner = TRPOLearner(
        model, max_kl=max_kl, damping=0.01, cg_iterations=8, subtype=subtype, linesearch_type=linesearch_type
    )
    learner.optimize(0, play(model))
    for seed in range(1, 2 if recurrent else 4):
        batch = play(model, seed=seed)
        targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
        (part,) = minibatches(batch, None, whole=recurrent, rng=np.random.default_rng(0))
        before, _ = learner.surrogate(part, targets)
        moved = learner.move_policy(part, targets)
        after, kl = learner.surrogate(part, targets)
        assert after < before
        assert 0.2 * max_kl < float(kl.detach()) <= max_kl
        assert moved.fraction > 0.0
        assert moved.kl == pytest.approx(float(kl.detach()), rel=1e-3)


def test_a_policy_without_a_better_step_stays_where_it_is(make_model: MakeModel, play: Play) -> None:
    model = make_model(value_hiddens=[8])
    learner = TRPOLearner(model)
    batch = play(model)
    learner.optimize(0, batch)
    before = {key: tensor.clone() for key, tensor in model.tensors().items()}
    targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
    (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
    assert learner.move_policy(part, targets._replace(advantage=torch.zeros_like(batch.mask))).fraction == 0.0
    for key, tensor in model.tensors().items():
        assert torch.equal(tensor, before[key])


def test_a_value_that_shares_the_policys_network_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="value_hidden_sizes"):
        TRPOLearner(make_model())


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))])
def test_first_derivatives_give_the_curvature_that_second_ones_give(
    space: spaces.Space[Any], make_model: MakeModel, play: Play
) -> None:
    """And both that of a dense matrix, by finite differences of the divergence itself along two vectors."""
    model = make_model((4,), space=space, value_hiddens=[4])
    learner = TRPOLearner(model, damping=0.1)
    batch = play(model)
    learner.optimize(0, batch)
    targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
    (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
    before = torch.cat([tensor.detach().reshape(-1) for tensor in learner._policy_parameters])
    vector = torch.randn(len(before), generator=torch.Generator().manual_seed(0))
    vector /= vector.norm()
    second = learner._second_order(learner.surrogate(part, targets)[1])(vector)
    first = learner._first_order(part, targets)(vector)
    after = torch.cat([tensor.detach().reshape(-1) for tensor in learner._policy_parameters])
    assert torch.equal(after, before), "measuring changes nothing"
    assert (first - second).norm() < 0.02 * second.norm()
    step = 0.05
    learner._replace(before + step * vector)
    kl = float(learner.surrogate(part, targets)[1].detach())
    assert float(vector @ second) == pytest.approx(2.0 * kl / step**2 + 0.1, rel=0.1)


def test_the_next_try_is_where_parabolas_say() -> None:
    """Divergence 8 t^2 may be 0.5 until t = 0.25; the surrogate -t + 2 t^2 is lowest there too."""
    for fraction in (1.0, 0.6):
        kl, gain = 8.0 * fraction**2, -fraction + 2.0 * fraction**2
        found = shorter_fraction(fraction, gain=gain, slope=-1.0, kl=0.0, max_kl=0.5)
        assert found == pytest.approx(0.25)
        found = shorter_fraction(fraction, gain=-1.0, slope=-1.0, kl=kl, max_kl=0.5)
        assert found == pytest.approx(0.95 * 0.25)
    assert shorter_fraction(1.0, gain=-1.0, slope=-1.0, kl=0.5001, max_kl=0.5) == pytest.approx(0.95, abs=1e-3)
    assert shorter_fraction(1.0, gain=1e9, slope=-1.0, kl=0.0, max_kl=0.5) == pytest.approx(0.1)
    assert shorter_fraction(1.0, gain=float("nan"), slope=-1.0, kl=float("nan"), max_kl=0.5) == pytest.approx(0.1)


def test_an_adaptive_search_needs_fewer_tries(make_model: MakeModel, play: Play) -> None:
    tries = {}
    for kind in ("Origin", "Adaptive"):
        model = make_model(value_hiddens=[8])
        learner = TRPOLearner(model, linesearch_type=kind)
        batch = play(model)
        learner.optimize(0, batch)
        targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
        (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
        loss, _ = learner.surrogate(part, targets)
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, learner._policy_parameters)])
        step, count = -30.0 * gradient / gradient.norm(), [0]
        surrogate = learner.surrogate

        def counted(part: Any, targets: Any, count: list[int] = count, surrogate: Any = surrogate) -> Any:
            count[0] += 1
            return surrogate(part, targets)

        learner.surrogate = counted  # type: ignore[method-assign]
        learner.line_search_steps = 50
        found = learner._search(part, targets, step, float(loss.detach()), float(gradient @ step))
        assert found is not None
        tries[kind] = count[0]
    assert tries["Adaptive"] < tries["Origin"]


def test_batches_are_gathered_until_there_are_enough_episodes_or_steps(make_model: MakeModel, play: Play) -> None:
    """The update is that of one large batch."""
    model, whole = (make_model(value_hiddens=[8]) for _ in range(2))
    batches = [play(model, seed=seed) for seed in range(3)]
    episodes = [int((batch.terminated | batch.truncated).sum()) for batch in batches]
    steps = [int(batch.mask.sum()) for batch in batches]
    TRPOLearner(whole, mini_batch=None).optimize(0, concatenate(batches))
    for options in ({"episodes_per_batch": sum(episodes)}, {"timesteps_per_batch": sum(steps[:2]) + 1}):
        model = make_model(value_hiddens=[8])
        before = {key: tensor.clone() for key, tensor in model.tensors().items()}
        learner = TRPOLearner(model, mini_batch=None, **options)
        for i, batch in enumerate(batches):
            assert all(torch.equal(tensor, before[key]) for key, tensor in model.tensors().items()), "not yet"
            learner.optimize(i, batch)
        for key, tensor in whole.tensors().items():
            torch.testing.assert_close(model.tensors()[key], tensor)


def test_batches_with_fewer_rows_are_filled_up_where_they_are_put_together(make_model: MakeModel, play: Play) -> None:
    """Batches have as many rows as their trajectory with most ends of episodes needs."""
    model = make_model()
    long, short = play(model, seed=0), play(model, seed=1)
    rows = len(long.mask) - 2
    short = short._replace(
        obs=short.obs[: rows + 1],
        is_first=short.is_first[: rows + 1],
        extras={name: column[:rows] for name, column in short.extras.items()},
        **{name: getattr(short, name)[:rows] for name in (
            "action", "reward", "discount", "mask", "terminated", "truncated", "version",
        )},
    )  # fmt: skip
    joined, columns = concatenate([short, long]), short.mask.shape[1]
    assert joined.mask.shape[0] == rows + 2
    filling = slice(rows, None)
    for name in ("mask", "reward", "discount", "terminated", "truncated"):
        assert not getattr(joined, name)[filling, :columns].any()
    assert not joined.is_first[rows + 1 :, :columns].any()
    assert (joined.obs[rows:, :columns] == short.obs[-1]).all(), "the observation to bootstrap from"
    assert torch.equal(joined.mask[:, columns:], long.mask)
    ones = torch.ones(rows + 3, joined.mask.shape[1])
    found = generalised_advantages(joined.reward, joined.discount, joined.mask, ones, 0.9)
    alone = generalised_advantages(short.reward, short.discount, short.mask, ones[: rows + 1, :columns], 0.9)
    torch.testing.assert_close(found[:rows, :columns], alone)


def test_batches_of_nested_observations_and_states_are_put_together(make_model: MakeModel, play: Play) -> None:
    model = make_model(use_lstm=True, lstm_size=4)
    first, second = (
        batch._replace(obs={"b": (batch.obs, batch.obs[..., 0]), "a": batch.obs}, burn_in=2)
        for batch in (play(model, seed=seed) for seed in range(2))
    )
    joined = concatenate([first, second])
    assert joined.burn_in == 2
    assert joined.initial_state["state"].shape == (16, 2, 4)
    assert torch.equal(joined.obs["b"][1][:, 8:], second.obs["b"][1])
    assert torch.equal(joined.extras["log_probability"][:, :8], first.extras["log_probability"])
    assert joined.sample_info.generation.shape == (16,)
    assert joined.sample_info.priority is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linesearch_type": "adaptive"}, "linesearch_type is 'adaptive'; it must be Origin or Adaptive"),
        ({"subtype": "ppo"}, "subtype is 'ppo'; it must be trpo-d1 or trpo-d2"),
        ({"timesteps_per_batch": 9, "episodes_per_batch": 9}, "both set"),
        ({"episodes_per_batch": 0}, "episodes_per_batch is 0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str, make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match=message):
        TRPOLearner(make_model(value_hiddens=[8]), **options)
