"""Gradients and steps: groups, the two halves of an update, and what a checkpoint keeps of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from surreal.base.errors import CheckpointError, DivergedError
from surreal.base.types import Batch
from surreal.learner import GradientLearner, Gradients
from surreal.learner.stepping.stepper import SkipCounter
from surreal.model import MLP, QFunction

MakeBatch = Callable[..., Batch]


class TwoGroups(GradientLearner):
    """Fits its model to rewards, and a critic of its own to twice the rewards."""

    def build(self) -> None:
        self.critic = MLP((4, 1))
        self.optimize_group("actor", self.model.named_parameters())
        self.optimize_group("critic", self.critic.named_parameters())

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        self.step((self.model(batch.obs)[:, 0] - batch.reward).square().mean(), "actor")
        self.step((self.critic(batch.obs)[:, 0] - 2 * batch.reward).square().mean(), "critic")
        return {}


class OneGroup(GradientLearner):
    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        self.step(self.loss(batch))
        return {}

    def loss(self, batch: Batch) -> Tensor:
        return (self.model(batch.obs)[:, 0] - batch.reward).square().mean()


def made(cls: type[Any] = OneGroup, **options: Any) -> Any:
    return cls(QFunction([6], action_space=1, seed=0), **options)


def parameters(learner: GradientLearner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.model.tensors().items()}


def test_computing_gradients_changes_nothing_and_applying_them_is_the_step(make_batch: MakeBatch) -> None:
    whole, halves = made(), made()
    for learner in (whole, halves):
        learner.optimize(0, make_batch())
    before = parameters(halves)
    gradients = halves.gradients(halves.loss(make_batch(1)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in parameters(halves).items())
    halves.stepper.step(
        [Gradients(gradients.group, {name: tensor.clone() for name, tensor in gradients.tensors.items()})]
    )
    whole.optimize(1, make_batch(1))
    assert all(torch.equal(tensor, parameters(halves)[name]) for name, tensor in parameters(whole).items())


def test_the_mean_of_two_gradients_is_the_gradient_of_both_batches(make_batch: MakeBatch) -> None:
    learner = made(gradients_norm_clipping=None)
    learner.optimize(0, make_batch())
    first, second = make_batch(1), make_batch(2)
    parts = [learner.gradients(learner.loss(batch)).tensors for batch in (first, second)]
    both = first._replace(obs=torch.cat([first.obs, second.obs]), reward=torch.cat([first.reward, second.reward]))
    for name, tensor in learner.gradients(learner.loss(both)).tensors.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, tensor)


def test_groups_have_optimizers_of_their_own(make_batch: MakeBatch) -> None:
    learner = made(TwoGroups, metrics_interval=1)
    metrics = learner.optimize(0, make_batch())
    assert {"gradient_norm_actor", "gradient_norm_critic", "learning_rate_actor"} <= metrics.keys()
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in learner.critic.parameters()])
    assert metrics["weight_norm_critic"] == pytest.approx(float(flat.norm()), rel=1e-5)
    parts = {name.partition("/")[0] for name in learner.state_dict()["tensors"]}
    assert parts == {"model", "optimizer-actor", "optimizer-critic"}


class TwoRates(TwoGroups):
    def build(self) -> None:
        self.critic = MLP((4, 1))
        self.optimize_group("actor", self.model.named_parameters())
        self.optimize_group("critic", self.critic.named_parameters(), learning_rate=4.0)


def test_groups_with_learning_rates_of_their_own_are_annealed_in_proportion(make_batch: MakeBatch) -> None:
    schedule = {"use_linear_schedule": True, "max_global_step": 4, "learning_rate_end": 0.5, "schedule_step": "update"}
    learner = made(TwoRates, initial_learning_rate=1.0, metrics_interval=1, **schedule)
    found = []
    for i in range(6):
        metrics = learner.optimize(i, make_batch())
        found.append((metrics["learning_rate_actor"], metrics["learning_rate_critic"]))
    assert found == [(1.0, 4.0), (0.875, 3.5), (0.75, 3.0), (0.625, 2.5), (0.5, 2.0), (0.5, 2.0)]


def test_learning_rates_can_follow_a_cosine(make_batch: MakeBatch) -> None:
    schedule = {"use_cosine_schedule": True, "max_global_step": 4, "learning_rate_end": 0.5, "schedule_step": "update"}
    learner = made(TwoRates, initial_learning_rate=1.0, metrics_interval=1, **schedule)
    found = [learner.optimize(i, make_batch())["learning_rate_critic"] for i in range(6)]
    assert found == pytest.approx([4.0, 3.0 + 0.5**0.5, 3.0, 3.0 - 0.5**0.5, 2.0, 2.0])
    with pytest.raises(ValueError, match="use_cosine_schedule and learning_rate_factor: use one of them"):
        made(TwoRates, use_linear_schedule=True, **schedule)


def test_learning_rates_can_follow_points_and_classes(make_batch: MakeBatch) -> None:
    def rates(factor: Any) -> list[float]:
        options = {"initial_learning_rate": 1.0, "metrics_interval": 1, "schedule_step": "update"}
        learner = made(TwoRates, learning_rate_factor=factor, **options)
        return [learner.optimize(i, make_batch())["learning_rate_critic"] for i in range(4)]

    assert rates([[0, 0.0], [2, 1.0], [3, 0.5]]) == [0.0, 2.0, 4.0, 2.0]
    assert rates({"type": "cosine", "start": 1.0, "end": 0.0, "steps": 2}) == pytest.approx([4.0, 2.0, 0.0, 0.0])
    linear = {"class": "surreal.base.schedules.LinearSchedule", "args": {"start": 0.5, "end": 1.0, "steps": 2}}
    assert rates(linear) == [2.0, 3.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ([[0, 1.0], [5, float("nan")]], "is nan at step 5; it must be finite and >= 0"),
        ([[0, 3e38], [5, float("inf")]], "is inf at step 5"),
        ([[0, 3.0], [0, 1.0]], "they must be >= 0 and rise"),
        ([[0]], "not enough values"),
        ([["a", 1.0]], "invalid literal"),
        ({"type": "ape_x"}, "it needs one"),
        ({"type": "linear", "start": -1.0, "end": 1.0, "steps": 3}, r"is -1.0 at step 0"),
    ],
)
def test_factors_of_a_learning_rate_are_refused_at_once(factor: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"learning_rate_factor .*{message}"):
        made(learning_rate_factor=factor)


def test_a_factor_that_is_no_number_any_more_changes_no_parameter(make_batch: MakeBatch) -> None:
    falling = {"type": "linear", "start": 1.0, "end": -1.0, "steps": 2}
    learner = made(learning_rate_factor=falling, schedule_step="update")
    learner.optimize(0, make_batch())
    learner.optimize(1, make_batch())
    before = parameters(learner)
    with pytest.raises(ValueError, match=r"learning_rate_factor is -1.0 at step 2"):
        learner.optimize(2, make_batch())
    assert all(torch.equal(each, before[name]) for name, each in parameters(learner).items())


def test_a_parameter_that_the_loss_does_not_know_stays(make_batch: MakeBatch) -> None:
    learner = made()
    learner.optimize(0, make_batch())
    before = parameters(learner)
    gradients = learner.gradients(learner.model.q.output.bias.sum())
    assert gradients.tensors.keys() == {"q.output.bias"}
    learner.stepper.step([gradients])
    changed = {name for name, tensor in parameters(learner).items() if not torch.equal(tensor, before[name])}
    assert changed == {"q.output.bias"}


class Keeper(OneGroup):
    def build(self) -> None:
        super().build()
        self.other = QFunction([3], action_space=1, obs_spec=self.model.obs_spec, seed=1)
        self.keep("other", self.other)


def test_what_is_kept_comes_back_and_may_not_be_missing(make_batch: MakeBatch) -> None:
    learner, restored = made(Keeper), made(Keeper)
    learner.optimize(0, make_batch())
    with torch.no_grad():
        learner.other.q.output.bias.fill_(7.0)
    state = learner.state_dict()
    restored.load_state_dict(state)
    assert restored.other.q.output.bias.item() == 7.0
    without = {name: tensor for name, tensor in state["tensors"].items() if not name.startswith("other/")}
    with pytest.raises(CheckpointError, match="other"):
        made(Keeper).load_state_dict({**state, "tensors": without})


def test_a_part_is_kept_once() -> None:
    learner = made()
    learner.keep("target", learner.model)
    for name in ("target", "model", "a/b"):
        with pytest.raises(ValueError, match="cannot be named"):
            learner.keep(name, learner.model)


@pytest.mark.parametrize("clipping", [None, 1.0])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "rmsprop_tf", "nadam"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_gradients_that_are_not_finite_change_nothing_and_are_counted(
    make_batch: MakeBatch, bad: float, optimizer: str, clipping: float | None
) -> None:
    learner = made(optimizer=optimizer, gradients_norm_clipping=clipping, metrics_interval=1)
    twin = made(optimizer=optimizer, gradients_norm_clipping=clipping, metrics_interval=1)
    for i in range(2):
        learner.optimize(i, make_batch(i))
        twin.optimize(i, make_batch(i))
    spoilt = make_batch(5)
    spoilt.obs[3, 1] = bad
    learner.optimize(2, spoilt)
    assert learner.metrics()["learner/skipped_updates_total"] == 1
    learner.optimize(3, make_batch(3))
    twin.optimize(3, make_batch(3))
    ours, theirs = learner.state_dict()["tensors"], twin.state_dict()["tensors"]
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_learner_that_skips_everything_says_that_it_has_diverged(make_batch: MakeBatch) -> None:
    learner = made()
    learner.optimize(0, make_batch())
    spoilt = make_batch(1)
    spoilt.obs[:] = torch.nan
    for i in range(learner.skipped_limit - 1):
        learner.optimize(i, spoilt)
    learner.optimize(0, make_batch(2))  # one that is good, and the count begins again
    for i in range(learner.skipped_limit - 1):
        learner.optimize(i, spoilt)
    learner.check_learned()
    with pytest.raises(DivergedError, match="gradients of 50 updates in a row"):
        learner.optimize(0, spoilt)
    assert learner.updates == 101
    assert learner.skipped_updates == 99


def test_skipped_updates_are_counted_over_the_whole_run(make_batch: MakeBatch) -> None:
    learner, spoilt = made(), make_batch(1)
    spoilt.obs[:] = torch.nan
    learner.optimize(0, make_batch())
    saved = learner.state_dict()
    for i in range(2):
        learner.optimize(i, spoilt)
    learner.load_state_dict(saved)  # as a learner does that goes back
    assert learner.skipped_updates == 2
    resumed = made()
    resumed.load_state_dict(learner.state_dict())
    resumed.optimize(0, spoilt)
    assert resumed.skipped_updates == 3
    with pytest.raises(DivergedError, match="none of 1 updates"):
        resumed.check_learned()
    saved["state"]["skipped_updates"] = -1
    with pytest.raises(CheckpointError, match="skipped_updates: -1 is not a whole number"):
        made().load_state_dict(saved)


def test_one_group_of_parameters_that_never_moves_is_a_divergence(make_batch: MakeBatch) -> None:
    counter, nan, one = SkipCounter(3), torch.tensor(math.nan), torch.tensor(1.0)
    for _ in range(5):  # some steps of each update are good
        for norm in (nan, one, nan):
            counter.note("model", norm)
        counter.end_update(is_checked=True)
    assert counter.total == 0
    with pytest.raises(DivergedError, match="3 updates in a row"):
        for _ in range(3):
            counter.note("critic", nan)
            counter.note("actor", one)
            counter.end_update(is_checked=True)
    assert counter.total == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "rmsprop_tf", "nadam"])
def test_gradients_that_are_not_finite_change_nothing_on_a_gpu(make_batch: MakeBatch, optimizer: str) -> None:
    learner = made(optimizer=optimizer, device="cuda", metrics_interval=1)
    learner.optimize(0, make_batch())
    before = {name: tensor.clone() for name, tensor in learner.state_dict()["tensors"].items()}
    spoilt = make_batch(1)
    spoilt.obs[:] = torch.nan
    learner.optimize(1, spoilt)
    assert learner.metrics()["learner/skipped_updates_total"] == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict()["tensors"].items())
