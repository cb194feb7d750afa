"""Ranks: learners that step down the mean of their gradients stay equal, and learn what one learner would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.errors import DivergedError, RankError
from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, SampleInfo, TrajectoryBatch
from surreal.learner import DDPGLearner, GradientLearner, PPOLearner, SACLearner
from surreal.model import MLP, ActorCritic, DeterministicActorCritic, QFunction, SoftActorCritic
from tests.meeting import together
from tests.ranked import UPDATES, learned_alone, make_batch, make_learner, part_of, tensors_of

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
BOX = spaces.Box(-1.0, 1.0, (2,))


def learned(make: Callable[[], GradientLearner], batches: list[Any], rank: Any = None) -> dict[str, Tensor]:
    """The tensors of a learner after these batches."""
    learner = make()
    if rank is not None:
        learner.learn_with(rank)
    for i, batch in enumerate(batches):
        learner.optimize(i, batch)
    return tensors_of(learner)


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], **tolerances: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if tolerances:
            torch.testing.assert_close(found[name], tensor, **tolerances)
        else:
            assert torch.equal(found[name], tensor), name


def test_four_ranks_with_quarters_of_a_batch_learn_what_one_learner_does_of_it_all() -> None:
    whole = [make_batch(seed) for seed in range(UPDATES)]
    ranks = together(4, lambda rank: learned(make_learner, [part_of(batch, rank.rank, 4) for batch in whole], rank))
    for found in ranks:
        assert_same(found, ranks[0])
    # Means of eight rows each, and their mean, round otherwise than one mean of 32: 24 bits, over eight updates.
    assert_same(ranks[0], learned_alone(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [DDPGLearner, SACLearner])
def test_several_groups_and_target_networks_stay_equal(cls: type[Any]) -> None:
    models = {DDPGLearner: DeterministicActorCritic, SACLearner: SoftActorCritic}

    def make() -> GradientLearner:
        learner: GradientLearner = cls(models[cls]([8], action_space=BOX, obs_spec=OBS, seed=0), metrics_interval=1)
        return learner

    def batch(seed: int) -> Batch:
        made = make_batch(seed)
        return made._replace(action=torch.rand(len(made.reward), 2, generator=torch.Generator().manual_seed(seed)))

    ranks = together(2, lambda rank: learned(make, [batch(10 * rank.rank + i) for i in range(4)], rank))
    assert_same(ranks[1], ranks[0])
    assert not all(torch.equal(tensor, ranks[0][name]) for name, tensor in learned(make, []).items())


def trajectories(seed: int, rows: int, share: float = 0.9) -> TrajectoryBatch:
    """Random trajectories [rows, 4], of whose rows about this share are steps."""
    random, shape = torch.Generator().manual_seed(seed), (rows, 4)
    mask = (torch.rand(shape, generator=random) < share).float()
    numbers = np.arange(4)
    return TrajectoryBatch(
        obs=torch.randn(rows + 1, 4, 4, generator=random),
        action=torch.randint(0, 3, shape, generator=random),
        reward=torch.rand(shape, generator=random) * mask,
        discount=0.9 * mask,
        mask=mask,
        is_first=torch.zeros((rows + 1, 4), dtype=torch.bool),
        terminated=torch.zeros(shape, dtype=torch.bool),
        truncated=torch.zeros(shape, dtype=torch.bool),
        version=torch.zeros(shape, dtype=torch.int64),
        extras={"log_probability": torch.full(shape, -1.1)},
        initial_state={},
        sample_info=SampleInfo(numbers, np.ones(4), np.zeros(4, np.int64)),
        burn_in=0,
    )


def ppo(**options: Any) -> PPOLearner:
    model = ActorCritic(
        (8,), action_space=spaces.Discrete(3), obs_spec=OBS, seed=0, normalize_obs=True, normalize_rewards=True
    )
    return PPOLearner(model, mini_batch=8, initial_learning_rate=0.01, **options)


@pytest.mark.parametrize("options", [{}, {"max_kl": 1e-4}, {"kl_target": 0.01}])
def test_ranks_that_do_not_do_the_same_number_of_steps_stay_equal(options: dict[str, float]) -> None:
    def work(rank: Any) -> tuple[dict[str, Tensor], int]:
        learner = ppo(**options)
        learner.learn_with(rank)
        steps = [0]
        learner.skipped.note = lambda *_: steps.__setitem__(0, steps[0] + 1)  # type: ignore[method-assign]
        for i in range(3):
            learner.optimize(i, trajectories(10 * rank.rank + i, rows=16, share=0.9 if rank.rank else 0.5))
        return tensors_of(learner), steps[0]

    (first, first_steps), (second, second_steps) = together(2, work)
    assert_same(second, first)
    assert first_steps == second_steps > 0


def test_filters_count_what_all_ranks_have_seen() -> None:
    batches = [[trajectories(10 * rank + i, rows=8) for i in range(3)] for rank in range(2)]
    ranks = together(2, lambda rank: learned(ppo, batches[rank.rank], rank))
    obs = torch.cat([batch.obs[:-1][batch.mask > 0] for own in batches for batch in own]).double()
    for found in ranks:
        count, mean, squares = (found[f"model/obs_filter.moments.0.{part}"] for part in ("count", "mean", "squares"))
        assert count == found["model/return_filter.moments.count"] == len(obs)
        torch.testing.assert_close(mean, obs.mean(0))
        torch.testing.assert_close(squares, (obs - obs.mean(0)).square().sum(0))
    assert_same(ranks[1], ranks[0])


class TwoGroups(GradientLearner):
    """Steps the critic as often as the first reward says, and the model once, which -1 lets diverge."""

    def build(self) -> None:
        self.critic = MLP((4, 1))
        for parameter in self.critic.parameters():
            torch.nn.init.constant_(parameter, 0.1)
        self.optimize_group("actor", self.model.named_parameters())
        self.optimize_group("critic", self.critic.named_parameters())

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        times = int(batch.reward[0])
        for _ in range(times):
            self.step((self.critic(batch.obs)[:, 0] - 1.0).square().mean(), "critic")
        loss = (self.model(batch.obs)[:, 0] - 1.0).square().mean()
        self.step(loss * (float("nan") if times < 0 else 1.0), "actor")
        return {}


def two_groups() -> TwoGroups:
    return TwoGroups(QFunction([6], action_space=1, seed=0), gradients_norm_clipping=None)


def with_times(batch: Batch, times: int) -> Batch:
    return batch._replace(reward=torch.full_like(batch.reward, float(times)))


def test_ranks_may_be_at_different_groups_at_the_same_time() -> None:
    times = [[3, 0, 1], [1, 2, 0], [0, 0, 0]]
    batches = [[with_times(make_batch(i), each) for i, each in enumerate(own)] for own in times]
    ranks = together(3, lambda rank: learned(two_groups, batches[rank.rank], rank))
    assert_same(ranks[1], ranks[0])
    assert_same(ranks[2], ranks[0])


def test_gradients_of_one_rank_that_are_not_finite_change_nothing_on_any() -> None:
    def work(rank: Any) -> tuple[dict[str, Tensor], int]:
        learner = two_groups()
        learner.learn_with(rank)
        learner.optimize(0, with_times(make_batch(0), 0))
        before = tensors_of(learner)
        learner.optimize(1, with_times(make_batch(0), -rank.rank))
        after = tensors_of(learner)
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items() if name.startswith("model/"))
        return after, learner.skipped.total

    (first, first_skipped), (second, second_skipped) = together(2, work)
    assert (first_skipped, second_skipped) == (1, 1)
    assert_same(second, first)


def test_all_ranks_diverge_in_the_same_update() -> None:
    def work(rank: Any) -> int:
        learner = two_groups()
        learner.learn_with(rank)
        with pytest.raises(DivergedError):
            for i in range(2 * learner.skipped_limit):
                learner.optimize(i, with_times(make_batch(0), -1 if rank.rank and i > 2 else 0))
        return learner.updates

    first, second = together(2, work)
    assert first == second == 3 + GradientLearner.skipped_limit


class Unused(GradientLearner):
    """Its loss does not depend on the hidden layer where the reward is 0."""

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        q = self.model(batch.obs) if float(batch.reward[0]) else self.model.head.bias  # type: ignore[union-attr]
        self.step(q.square().mean())
        return {}


def test_a_parameter_without_gradient_on_one_rank_moves_by_that_of_the_other() -> None:
    class Model(QFunction):
        @property
        def head(self) -> Any:
            return [module for module in self.modules() if isinstance(module, torch.nn.Linear)][-1]

    def make() -> Unused:
        return Unused(Model([6], action_space=1, obs_spec=OBS, seed=0))

    before = learned(make, [])
    ranks = together(2, lambda rank: learned(make, [with_times(make_batch(0), rank.rank)], rank))
    assert_same(ranks[1], ranks[0])
    moved = [name for name in before if name.startswith("model/") and not torch.equal(before[name], ranks[0][name])]
    assert len(moved) == 4


def test_a_rank_that_fails_in_an_update_is_noticed_by_the_others() -> None:
    def work(rank: Any) -> None:
        learner = make_learner()
        learner.learn_with(rank)
        learner.optimize(0, make_batch(0))
        if rank.rank:
            raise RankError("gone")
        with pytest.raises(RankError):
            learner.optimize(1, make_batch(0))

    with pytest.raises(RankError, match="gone"):
        together(2, work)
