"""PPO: what holds the policy, how often it and its value are moved, and how batches are split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.types import TrajectoryBatch
from surreal.learner import PPOLearner
from surreal.learner.on_policy import minibatches as splitting
from surreal.learner.on_policy.evaluating import make_targets
from surreal.learner.on_policy.minibatches import epochs, everything, minibatches
from surreal.learner.on_policy.ppo import AdaptiveKL

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play


def test_minibatches_have_each_step_once_and_no_other_row(make_model: MakeModel, play: Play) -> None:
    batch = play(make_model())
    count = torch.zeros_like(batch.mask)
    sizes = []
    for part in minibatches(batch, 20, whole=False, rng=np.random.default_rng(0)):
        count[part.index] += 1.0
        sizes.append(len(part.action))
        assert part.mask is None
        assert torch.equal(part.obs, batch.obs[:-1][part.index])
        assert torch.equal(part.action, batch.action[part.index])
    assert torch.equal(count, batch.mask)
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == round(int(batch.mask.sum()) / 20)


def test_one_minibatch_of_all_steps_has_them_in_order(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    learner = PPOLearner(model)
    batch = play(model)
    targets = make_targets(model, batch, gae_lambda=0.95, normalize_advantage=True)
    steps = int(batch.mask.sum())
    assert steps < batch.mask.numel()
    rng = np.random.default_rng(0)
    whole = epochs(batch, 2 * steps // 3 + 1, whole=False, rng=rng)
    (part,) = whole()
    assert torch.equal(part.action, batch.action[batch.mask > 0.0])
    assert torch.equal(part.obs, batch.obs[:-1][batch.mask > 0.0])
    (shuffled,) = minibatches(batch, None, whole=False, rng=rng)
    as_it_lies = everything(batch, whole=True)
    assert as_it_lies.action is batch.action
    for other in (shuffled, as_it_lies):
        both = [learner.losses(learner.part_of(each, targets)) for each in (part, other)]
        for ours, theirs in zip(*both, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert len(list(epochs(batch, 2 * steps // 3 - 1, whole=False, rng=rng)())) == 2


def test_minibatches_of_a_recurrent_model_are_whole_trajectories(make_model: MakeModel, play: Play) -> None:
    model = make_model(use_lstm=True, lstm_size=4)
    batch = play(model)
    state = torch.randn(8, 2, 4)
    batch = batch._replace(initial_state={"state": state})
    (policy, value), _ = model(batch.obs, state, batch.is_first)
    seen = []
    for part in minibatches(batch, 40, whole=True, rng=np.random.default_rng(0)):
        columns = part.index[1]
        seen += columns.tolist()
        ours, our_value = part.compute(model)
        torch.testing.assert_close(our_value, value[:-1][:, columns])
        torch.testing.assert_close(ours.logits, policy[:-1][:, columns].logits)
        assert len(columns) == 2
    assert sorted(seen) == list(range(8))


def test_the_first_losses_of_an_update_are_those_of_the_policy_that_acted(make_model: MakeModel, play: Play) -> None:
    model = make_model(normalize_obs=True)
    learner = PPOLearner(model)
    for i in range(2):
        batch = play(model, seed=i)
        targets = make_targets(model, batch, gae_lambda=0.95, normalize_advantage=True)
        (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
        with torch.no_grad():
            losses = learner.losses(learner.part_of(part, targets, is_shown=True))
        assert float(losses.kl) == pytest.approx(0.0, abs=1e-6)
        assert float(losses.policy) == pytest.approx(0.0, abs=1e-5)  # ratios are 1, and advantages have mean 0
        assert losses.clip_fraction == 0.0
        learner.optimize(i, batch)


def test_the_policy_before_an_update_stays_as_it_was(make_model: MakeModel, play: Play) -> None:
    """A free deviation is a parameter, of which the distribution has a view."""
    model = make_model(space=spaces.Box(-1, 1, (2,)))
    targets = make_targets(model, play(model), gae_lambda=0.95, normalize_advantage=True)
    with torch.no_grad():
        model.policy.log_sigma += 1.0
    assert not targets.policy.log_sigma.any()


def test_an_update_ends_when_the_policy_went_too_far(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    learner = PPOLearner(model, initial_learning_rate=0.05, max_kl=0.01, metrics_interval=1)
    metrics = learner.optimize(0, play(model))
    assert metrics["policy_epochs"] < 10
    assert metrics["kl"] > 0.0


def test_policy_and_value_have_their_own_number_of_epochs(make_model: MakeModel, play: Play) -> None:
    model = make_model(value_hiddens=[4])
    learner = PPOLearner(model, policy_iterations=1, value_func_iterations=3, mini_batch=None)
    learner.optimize(0, play(model))
    tensors = learner.state_dict()["tensors"]
    steps = {key.split("/")[1].split(".")[0]: int(value) for key, value in tensors.items() if key.endswith("/step")}
    assert steps == {"torso": 1, "policy": 1, "value_network": 3}


def test_a_stopped_policy_does_not_stop_a_value_of_its_own(make_model: MakeModel, play: Play) -> None:
    model = make_model(value_hiddens=[4])
    learner = PPOLearner(model, mini_batch=None, max_kl=1e-9, initial_learning_rate=0.01)
    learner.optimize(0, play(model))
    tensors = learner.state_dict()["tensors"]
    assert tensors["optimizer/policy.output.weight/step"] < 3
    assert tensors["optimizer/value_network.value.output.weight/step"] == 10


def test_the_clip_range_is_annealed_by_updates_if_the_learning_rate_is(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    schedule: Any = {"max_global_step": 4, "schedule_step": "update", "use_linear_schedule": True}
    learner = PPOLearner(
        model, clip_range=0.2, clip_range_end=0.0, initial_learning_rate=0.01, mini_batch=None, **schedule
    )
    learner.on_global_step(1000)
    for i in range(5):
        reading = learner.optimize(i, play(model))
        share = max(0.0, 1.0 - i / 4)
        assert reading["clip_range"] == pytest.approx(0.2 * share)
        assert reading["learning_rate"] == pytest.approx(0.01 * share)


def test_the_clip_range_is_annealed_by_env_steps_and_stays_at_its_end(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    learner = PPOLearner(model, clip_range=0.2, clip_range_end=0.1, max_global_step=1000, mini_batch=None)
    for step, expected in ((0, 0.2), (500, 0.15), (2000, 0.1)):
        learner.on_global_step(step)
        learner.optimize(0, play(model))
        assert learner.clip_range == pytest.approx(expected)


def test_the_clip_range_is_a_list_of_points(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    points = [[0, 0.2], [100, 0.4], [200, 0.1]]
    learner = PPOLearner(model, clip_range=points, schedule_step="update", mini_batch=None, metrics_interval=1)
    for updates, expected in ((0, 0.2), (50, 0.3), (150, 0.25), (500, 0.1)):
        learner.updates = updates
        assert learner.optimize(updates, play(model))["clip_range"] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"clip_range is -1\.0 at step 5; it must be finite and >= 0"):
        PPOLearner(model, clip_range=[[0, 0.2], [5, -1]])
    with pytest.raises(ValueError, match="so clip_range_end cannot be its end"):
        PPOLearner(model, clip_range=points, clip_range_end=0.1)


def test_the_penalty_follows_the_divergence() -> None:
    penalty = AdaptiveKL(0.01)
    for divergence, expected in ((0.02, 2.0), (0.012, 2.0), (0.008, 2.0), (0.001, 1.0)):
        penalty.after_update(divergence)
        assert penalty.coefficient == expected


@pytest.mark.slow
def test_the_penalty_brings_updates_to_their_target(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    learner = PPOLearner(model, clip_range=None, kl_target=0.01, initial_learning_rate=0.01, metrics_interval=1)
    found = [learner.optimize(i, play(model, seed=i))["kl"] for i in range(30)]
    assert 0.01 / 4 < np.mean(found[-10:]) < 0.01 * 4


def test_squares_of_the_values_parameters_are_held_down(make_model: MakeModel, play: Play) -> None:
    norms = []
    for l2_coeff in (0.0, 1.0):
        model = make_model(value_hiddens=[4])
        learner = PPOLearner(model, l2_coeff=l2_coeff, initial_learning_rate=0.01)
        for i in range(3):
            learner.optimize(i, play(model, seed=i))
        norms.append(float(model.tensors()["value_network.value.output.weight"].norm()))
    assert norms[1] < 0.5 * norms[0]


def test_an_update_of_several_epochs_reads_the_mask_once(
    make_model: MakeModel, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read waits for a GPU."""
    reads: list[TrajectoryBatch] = []
    real = splitting._steps

    def read(batch: TrajectoryBatch) -> torch.Tensor:
        reads.append(batch)
        return real(batch)

    monkeypatch.setattr(splitting, "_steps", read)
    learner = PPOLearner(make_model(), policy_iterations=4, mini_batch=5)
    learner.optimize(0, play(make_model()))
    assert len(reads) == 1
