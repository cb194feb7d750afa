"""What all learners of policies do: they learn every kind of action, with a memory too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.types import TrajectoryBatch
from surreal.learner import (
    A2CLearner,
    APPOLearner,
    GradientLearner,
    PolicyGradientLearner,
    PPOLearner,
    TRPOLearner,
    VTraceLearner,
)
from surreal.learner.on_policy.evaluating import evaluate
from surreal.model import Normal

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play

Make = Callable[..., GradientLearner]
LARGE_STEPS = {"max_kl": 0.1, "damping": 0.01, "cg_iterations": 6, "value_func_iterations": 3}
LEARNERS: dict[str, Make] = {
    "pg": PolicyGradientLearner,
    "a2c": A2CLearner,
    "vtrace": VTraceLearner,
    "ppo": PPOLearner,
    "appo": APPOLearner,
    "trpo": lambda model, entropy_beta=0.0, **options: TRPOLearner(model, **{**LARGE_STEPS, **options}),
}
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 2]),
    "multi_binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}


def needs(name: str) -> dict[str, Any]:
    """What an algorithm wants of its model."""
    return {"value_hiddens": [16]} if name == "trpo" else {}


def mean_reward(batch: TrajectoryBatch) -> float:
    return float(batch.reward.sum() / batch.mask.sum())


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", LEARNERS)
def test_learns_what_is_right(name: str, space: str, make_model: MakeModel, play: Play) -> None:
    model = make_model(space=SPACES[space], log_sigma=-1.0, **needs(name))
    learner = LEARNERS[name](model, initial_learning_rate=0.03, entropy_beta=0.0)
    before = mean_reward(play(model, seed=1000))
    for i in range({"ppo": 4, "appo": 4, "trpo": 8}.get(name, 24)):
        learner.optimize(i, play(model, seed=i, columns=16))
    after = mean_reward(play(model, seed=1000))
    # From guessing towards 1 (or 2, or 0) a step; half of the way is far more than chance gives.
    best = {"discrete": 1.0, "box": 0.0}.get(space, 2.0)
    assert best - after < 0.6 * (best - before)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
def test_learns_with_a_memory(name: str, apart: bool, make_model: MakeModel, play: Play) -> None:
    model = make_model(use_lstm=True, lstm_size=16, value_hiddens=[8] if apart or name == "trpo" else None)
    learner = LEARNERS[name](model, initial_learning_rate=0.03, entropy_beta=0.0)
    before = mean_reward(play(model, seed=1000))
    for i in range({"ppo": 4, "appo": 4, "trpo": 4}.get(name, 20)):
        learner.optimize(i, play(model, seed=i))
    assert 1.0 - mean_reward(play(model, seed=1000)) < 0.7 * (1.0 - before)


@pytest.mark.parametrize("name", LEARNERS)
def test_what_stands_in_rows_without_a_step_does_not_matter(name: str, make_model: MakeModel, play: Play) -> None:
    parameters = []
    for scale in (1.0, 50.0):
        model = make_model(normalize_obs=True, normalize_rewards=True, **needs(name))
        learner = LEARNERS[name](model)
        batch = play(model)
        rows = batch.mask == 0.0
        assert rows.any()
        batch.extras["log_probability"][rows] *= scale
        batch.extras["value"][rows] *= scale
        learner.optimize(0, batch)
        parameters.append(model.tensors())
    for tensor_name, tensor in parameters[0].items():
        assert torch.equal(tensor, parameters[1][tensor_name]), tensor_name


@pytest.mark.parametrize("name", LEARNERS)
def test_each_step_counts_once_into_the_filters(name: str, make_model: MakeModel, play: Play) -> None:
    model = make_model(normalize_obs=True, normalize_rewards=True, **needs(name))
    learner = LEARNERS[name](model)
    seen = []
    for i in range(3):
        batch = play(model, seed=i)
        learner.optimize(i, batch)
        seen.append(batch.obs[:-1][batch.mask > 0.0])
    steps = torch.cat(seen).double()
    assert model.obs_filter is not None
    (moments,) = model.obs_filter.moments
    assert moments.count == len(steps)
    torch.testing.assert_close(moments.mean, steps.mean(0))
    assert model.return_filter is not None
    assert model.return_filter.moments.count == len(steps)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_first_update_sees_observations_as_the_policy_does_from_then_on(
    name: str, make_model: MakeModel, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(normalize_obs=True, **needs(name))
    learner, seen = LEARNERS[name](model), list[float]()
    name = "learn_all" if name == "trpo" else "learn"
    learn = getattr(learner, name)

    def look(*arguments: Any) -> Any:
        assert model.obs_filter is not None
        seen.append(float(model.obs_filter.moments[0].count))
        return learn(*arguments)

    monkeypatch.setattr(learner, name, look)
    batches = [play(model, seed=i) for i in range(2)]
    for i, batch in enumerate(batches):
        learner.optimize(i, batch)
    assert seen == [float(batches[0].mask.sum())] * 2, "the second batch is counted after its update"


@pytest.mark.parametrize("name", ["vtrace", "ppo", "appo", "trpo"])
def test_experience_without_log_probabilities_is_refused(name: str, make_model: MakeModel, play: Play) -> None:
    model = make_model(**needs(name))
    with pytest.raises(ValueError, match="PolicyAgent records it"):
        LEARNERS[name](model).optimize(0, play(model)._replace(extras={}))


def test_clipped_losses_of_a2c_keep_policy_and_value_near_those_of_the_agent(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    batch = play(model)
    far = {"log_probability": batch.extras["log_probability"] - 9.0, "value": batch.extras["value"] - 9.0}
    gradients = {}
    for name, extras in (("near", batch.extras), ("far", far)):
        learner = A2CLearner(make_model(), policy_clip=0.2, critic_clip=0.5, entropy_beta=0.0, metrics_interval=1)
        gradients[name] = learner.optimize(0, batch._replace(extras=extras))["gradient_norm"]
    assert gradients["far"] != gradients["near"]
    with pytest.raises(ValueError, match="no value, which this learner needs"):
        A2CLearner(make_model(), critic_clip=0.5).optimize(0, batch._replace(extras={}))


@pytest.mark.parametrize("name", LEARNERS)
def test_illegal_actions_get_no_probability_while_learning(name: str, make_model: MakeModel, play: Play) -> None:
    model = make_model(**needs(name))
    batch = play(model)
    mask = torch.zeros(*batch.mask.shape, 3, dtype=torch.bool)
    mask.scatter_(-1, batch.action[..., None], True)  # what was done was all that could be done
    extras = {**batch.extras, "log_probability": torch.zeros_like(batch.mask), "action_mask": mask}
    before = {key: tensor.clone() for key, tensor in model.tensors().items() if key.startswith("policy")}
    learner = LEARNERS[name](model, metrics_interval=1)
    metrics = learner.optimize(0, batch._replace(extras=extras))
    assert metrics["entropy"] == pytest.approx(0.0, abs=1e-6)
    for key, tensor in before.items():
        torch.testing.assert_close(model.tensors()[key], tensor, msg="nothing was to be learned of the policy")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pg", {"critic_scale": -1.0}, "critic_scale is -1.0; it must be >= 0"),
        ("a2c", {"gae_lambda": 1.5}, r"gae_lambda is 1.5; it must be in \[0, 1\]"),
        ("a2c", {"policy_clip": 0.0}, "policy_clip is 0.0; it must be > 0"),
        ("vtrace", {"c_bar": 2.0}, "c_bar is 2.0; it must be <= rho_bar"),
        ("trpo", {"max_kl": 0.0}, "max_kl is 0.0"),
        ("ppo", {"policy_iterations": 0}, "policy_iterations is 0"),
        ("ppo", {"clip_range": None}, "both null"),
        ("ppo", {"clip_range": None, "kl_target": 0.01, "vf_clipped_loss": True}, "vf_clipped_loss need it"),
        ("ppo", {"clip_range_end": 0.0}, "clip_range_end needs it to be >= 1. Set it, or run.max_env_steps"),
        ("ppo", {"value_func_iterations": 3}, "no separate network"),
    ],
)
def test_settings_out_of_range_are_refused(
    name: str, options: dict[str, Any], message: str, make_model: MakeModel
) -> None:
    with pytest.raises(ValueError, match=message):
        LEARNERS[name](make_model(**needs(name)), **options)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_option_that_a_learner_does_not_have_is_refused(name: str, make_model: MakeModel) -> None:
    with pytest.raises(TypeError, match="n_steps"):
        LEARNERS[name](make_model(**needs(name)), n_steps=5)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_learner_goes_on_bit_for_bit(name: str, make_model: MakeModel, play: Play) -> None:
    options: dict[str, Any] = {"kl_target": 0.01} if name == "ppo" else {}
    one, two = (make_model(normalize_obs=True, **needs(name)) for _ in range(2))
    first, second = LEARNERS[name](one, **options), LEARNERS[name](two, **options)
    batches = [play(one, seed=seed) for seed in range(3)]
    first.optimize(0, batches[0])
    first.optimize(1, batches[1])
    saved = first.state_dict()
    second.load_state_dict({**saved, "tensors": {key: tensor.clone() for key, tensor in saved["tensors"].items()}})
    first.optimize(2, batches[2])
    second.optimize(2, batches[2])
    for key, tensor in one.tensors().items():
        assert torch.equal(tensor, two.tensors()[key]), key


def test_a_baseline_that_is_not_wanted_is_not_trained(make_model: MakeModel, play: Play) -> None:
    model = make_model(value_hiddens=[4])
    before = {key: tensor.clone() for key, tensor in model.tensors().items()}
    PolicyGradientLearner(model, baseline=False).optimize(0, play(model))
    changed = {key.split(".")[0] for key, tensor in model.tensors().items() if not torch.equal(tensor, before[key])}
    assert changed == {"torso", "policy"}


def test_reward_to_go_without_a_baseline_is_what_was_collected(make_model: MakeModel, play: Play) -> None:
    """The gradient is that of a naive loop: sum of log p(action) times what followed."""
    model = make_model()
    batch = play(model)
    learner = PolicyGradientLearner(
        model, baseline=False, normalize_advantage=False, optimizer="rmsprop", gradients_norm_clipping=None
    )
    learner.optimize(0, batch)
    policy, _ = model(batch.obs[:-1])
    total = torch.zeros(())
    for b in range(8):
        for t in range(16):
            if batch.mask[t, b]:
                collected, weight = 0.0, 1.0
                for s in range(t, 16):
                    if not batch.mask[s, b]:
                        break
                    collected += weight * float(batch.reward[s, b])
                    weight *= float(batch.discount[s, b])
                total = total - batch.extras["log_probability"][t, b] * collected
    metrics = learner.reading
    assert metrics["policy_loss"] == pytest.approx(float(total / batch.mask.sum()), rel=1e-4)
    assert np.isfinite(metrics["gradient_norm"])
    assert policy.logits.isfinite().all()


@pytest.mark.parametrize("name", LEARNERS)
def test_histograms_show_the_normal_policy_that_an_update_left(name: str, make_model: MakeModel, play: Play) -> None:
    model = make_model(space=SPACES["box"], **needs(name))
    learner, batch = LEARNERS[name](model, histogram_interval=1), play(model)
    learner.optimize(0, batch)
    found, rows = learner.histograms.take(), batch.mask > 0.0
    policy = evaluate(model, batch).policy[rows]
    assert isinstance(policy, Normal)
    for what, values in (("mu", policy.mean), ("sigma", policy.log_sigma.exp())):
        counts, _ = np.histogram(values.detach().double().numpy(), bins=30)
        np.testing.assert_array_equal(found[f"learner/{what}"].counts, counts)
    assert {f"gradients/{key}" for key, _ in model.named_parameters() if "policy" in key} <= found.keys()


@pytest.mark.parametrize("name", LEARNERS)
def test_metrics_say_how_far_the_policy_is_from_the_one_that_acted(
    name: str, make_model: MakeModel, play: Play
) -> None:
    model = make_model(**needs(name))
    options: dict[str, Any] = {"policy_clip": 0.2} if name == "a2c" else {}
    learner, batch = LEARNERS[name](model, metrics_interval=1, **options), play(model)
    metrics = learner.optimize(0, batch)
    assert metrics["weight_norm"] > 0.0
    if name in ("ppo", "appo", "trpo"):
        assert metrics["kl"] > 0.0
        return
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    stale = {**batch.extras, "log_probability": batch.extras["log_probability"] - 0.5}
    before = evaluate(model, batch).log_probability.detach()
    metrics = learner.optimize(1, batch._replace(extras=stale))
    ratio = (before - stale["log_probability"])[batch.mask > 0.0].double().exp().numpy()
    assert metrics["importance_ratio_mean"] == pytest.approx(ratio.mean(), rel=1e-4)
    assert metrics["kl"] == pytest.approx(np.mean(ratio - 1.0 - np.log(ratio)), rel=1e-4)
    if name == "a2c":
        assert metrics["clip_fraction"] == pytest.approx(np.mean(np.abs(ratio - 1.0) > 0.2))
