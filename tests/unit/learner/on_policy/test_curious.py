"""Curiosity of on-policy learners: its reward is the learner's alone, and its networks are kept and restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from surreal.base.specs import ObsSpec
from surreal.base.types import SampleInfo, TrajectoryBatch
from surreal.learner import (
    A2CLearner,
    ActorCriticLearner,
    IPGLearner,
    PolicyGradientLearner,
    PPOLearner,
    VTraceLearner,
)
from surreal.learner.on_policy.base import CURIOSITY
from surreal.model import ActorCritic
from surreal.model.curiosity import Dynamics
from tests.unit.learner.off_policy.checks import assert_goes_on_bit_for_bit, tensors_of

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play

LEARNERS: dict[str, type[ActorCriticLearner[Any]]] = {
    "a2c": A2CLearner,
    "pg": PolicyGradientLearner,
    "ppo": PPOLearner,
    "vtrace": VTraceLearner,
}
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 2]),
    "multi_binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}
SMALL = {"reward_scale": 1.0, "hidden_sizes": [4], "units": 4}


def errors(dynamics: Dynamics, obs: Tensor, action: Tensor) -> Tensor:
    """Compute the forward model's error of each step, one by one."""
    found = torch.zeros(action.shape)
    for t, b in torch.cartesian_prod(*map(torch.arange, action.shape)).tolist():
        before, after = (dynamics.encoder(obs[row, b]) for row in (t, t + 1))
        known = torch.cat((before, one_hot(action[t, b].long(), 3)))
        found[t, b] = sum((x - y) ** 2 for x, y in zip(dynamics.ahead(known), after, strict=True)) / 2.0
    return found.detach()


def errors_of(learner: ActorCriticLearner[Any], batch: TrajectoryBatch) -> Tensor:
    return errors(learner.dynamics, batch.obs, batch.action)


@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_learns_from_surprise_with_every_kind_of_action(
    name: str, space: str, use_lstm: bool, make_model: MakeModel, play: Play
) -> None:
    model = make_model(space=SPACES[space], use_lstm=use_lstm, lstm_size=4, normalize_obs=True)
    learner = LEARNERS[name](model, icm=SMALL, metrics_interval=1)
    metrics = learner.optimize(0, play(model))
    assert metrics["intrinsic_reward_mean"] > 0.0
    assert metrics["gradient_norm_curiosity"] > 0.0


@pytest.mark.parametrize("options", [{}, {"normalize_obs": True, "normalize_rewards": True}, {"use_lstm": True}])
@pytest.mark.parametrize("name", LEARNERS)
def test_learns_from_the_scaled_reward_plus_the_error_before_the_update(
    name: str, options: dict[str, Any], make_model: MakeModel, play: Play
) -> None:
    model = make_model(**options)
    seen: list[Tensor] = []

    class Noting(LEARNERS[name]):  # type: ignore[misc]
        def learn(self, i: int, batch: TrajectoryBatch) -> Any:
            seen.append(batch.reward)
            return super().learn(i, batch)

    batch = play(model)
    learner = Noting(model, icm={**SMALL, "reward_scale": 0.5}, seed=3)
    learner.prepare(batch)
    for i in range(2):  # the first batch is counted by an empty filter before it is learned from
        before = {key: tensor.clone() for key, tensor in learner.dynamics.tensors().items()}
        if model.obs_filter is None or i > 0:
            obs = batch.obs if model.obs_filter is None else model.obs_filter(batch.obs)
            expected = 0.5 * batch.mask * errors(learner.dynamics, obs, batch.action)
            learner.optimize(i, batch)
            scaled = batch.reward if model.return_filter is None else model.return_filter(batch.reward)
            torch.testing.assert_close(seen[-1], scaled + expected)
        else:
            learner.optimize(i, batch)
        assert any(not tensor.equal(before[key]) for key, tensor in learner.dynamics.tensors().items())


def test_ppo_with_curiosity_is_ppo_on_rewards_that_hold_it(make_model: MakeModel, play: Play) -> None:
    curious, plain = PPOLearner(make_model(), icm=SMALL), PPOLearner(make_model())
    batch = play(curious.model)
    curious.prepare(batch)
    plain.optimize(0, batch._replace(reward=batch.reward + batch.mask * errors_of(curious, batch)))
    curious.optimize(0, batch)
    for name, tensor in plain.model.tensors().items():
        torch.testing.assert_close(curious.model.tensors()[name], tensor)


def test_what_was_often_seen_is_worth_less_than_what_was_not(make_model: MakeModel, play: Play) -> None:
    model = make_model()
    known = play(model, rows=8, columns=2)
    new = known._replace(obs=known.obs.flip(0) + 5.0)
    # With the inverse model, features of random observations would grow forever.
    settings = {**SMALL, "units": 32, "forward_share": 1.0, "learning_rate": 1e-2}
    learner = PPOLearner(model, icm=settings, policy_iterations=1)
    before = [float(learner.foresee(batch).reward.mean()) for batch in (known, new) if not learner.prepare(batch)]
    for i in range(100):
        learner.optimize(i, known)
    after = [float(learner.foresee(batch).reward.mean()) for batch in (known, new)]
    assert after[0] < 0.5 * before[0]
    assert after[1] / before[1] > 4.0 * after[0] / before[0]


class Lock:
    """Environments at places 0 to 12: at each, one of three actions leads on, others lead to 0; 12 has reward."""

    LAST, STEPS, COUNT = 12, 40, 16

    def __init__(self) -> None:
        self.right = torch.from_numpy(np.random.default_rng(5).integers(0, 3, self.LAST + 1))
        self.generator = torch.Generator().manual_seed(1)
        self.obs_spec = ObsSpec.from_obs(np.zeros(self.LAST + 1, np.float32))

    @torch.no_grad()
    def play(self, model: ActorCritic) -> TrajectoryBatch:
        """Play one episode in each environment."""
        at, seen = torch.zeros(self.COUNT, dtype=torch.int64), torch.eye(self.LAST + 1)
        places, actions, log_probabilities = [at], [], []
        for _ in range(self.STEPS):
            policy, _ = model(seen[at])
            action = policy.sample(self.generator)
            at = torch.where(action == self.right[at], (at + 1).clamp(max=self.LAST), 0)
            places.append(at)
            actions.append(action)
            log_probabilities.append(policy.log_probability(action))
        place, shape = torch.stack(places), (self.STEPS, self.COUNT)
        is_first, is_cut = torch.zeros(self.STEPS + 1, self.COUNT, dtype=torch.bool), torch.zeros(shape).bool()
        is_first[0], is_cut[-1] = True, True
        return TrajectoryBatch(
            obs=seen[place],
            action=torch.stack(actions),
            reward=(place[1:] == self.LAST).float(),
            discount=torch.full(shape, 0.97),
            mask=torch.ones(shape),
            is_first=is_first,
            terminated=torch.zeros(shape).bool(),
            truncated=is_cut,
            version=torch.zeros(shape, dtype=torch.int64),
            extras={"log_probability": torch.stack(log_probabilities)},
            initial_state={},
            sample_info=SampleInfo(*[np.zeros(self.COUNT, np.int64)] * 3),
        )


@pytest.mark.slow
def test_curiosity_opens_a_lock_that_chance_does_not() -> None:
    """Chance opens it in one of 500,000 tries, and there are 25,000."""
    lock = Lock()
    model = ActorCritic((32,), action_space=spaces.Discrete(3), obs_spec=lock.obs_spec, seed=1)
    assert not any(lock.play(model).reward.any() for _ in range(60))
    icm = {"reward_scale": 1.0, "learning_rate": 1e-2}
    options: dict[str, Any] = {"policy_iterations": 4, "mini_batch": 160, "initial_learning_rate": 3e-3}
    learner = PPOLearner(model, icm=icm, seed=1, **options)
    for i in range(60):
        batch = lock.play(model)
        learner.optimize(i, batch)
    assert float(batch.reward.sum(0).mean()) > 1.0


@pytest.mark.parametrize("name", LEARNERS)
def test_intrinsic_reward_is_added_to_the_returns_and_to_nothing_that_is_recorded(
    name: str, make_model: MakeModel, play: Play
) -> None:
    """Without reward from the environment there is an advantage all the same; filter and batch know nothing of it."""
    model = make_model(normalize_rewards=True)
    batch = play(model)
    batch = batch._replace(reward=torch.zeros_like(batch.reward))
    learner = LEARNERS[name](model, icm=SMALL)
    learner.optimize(0, batch)
    assert not batch.reward.any()
    assert model.return_filter is not None
    assert not model.return_filter.moments.mean.any()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_scale_of_zero_leaves_the_policy_as_it_is_without_curiosity(
    name: str, make_model: MakeModel, play: Play
) -> None:
    models = []
    for icm in (None, {**SMALL, "reward_scale": 0.0}):
        model = make_model()
        LEARNERS[name](model, icm=icm).optimize(0, play(model))
        models.append(model.tensors())
    for key, tensor in models[0].items():
        assert torch.equal(tensor, models[1][key]), key


def test_the_policys_loss_does_not_move_curiosity_and_surprise_not_the_policy(
    make_model: MakeModel, play: Play
) -> None:
    model = make_model()
    batch = play(model)
    learner = A2CLearner(model, icm=SMALL)
    learner.optimize(0, batch)
    before = tensors_of(learner)
    learner.update_curiosity(batch)
    changed = {name.partition("/")[0] for name, tensor in tensors_of(learner).items() if not tensor.equal(before[name])}
    assert changed == {CURIOSITY, f"optimizer-{CURIOSITY}"}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_learner_goes_on_bit_for_bit(name: str, make_model: MakeModel, play: Play, tmp_path: Path) -> None:
    source = make_model()
    batches: list[Any] = [play(source, seed=seed) for seed in range(4)]
    assert_goes_on_bit_for_bit(lambda: LEARNERS[name](make_model(normalize_obs=True), icm=SMALL), batches, tmp_path)


def test_wrong_settings_of_curiosity_are_refused_at_once(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="icm has no setting nu"):
        PPOLearner(make_model(), icm={"nu": 0.8})
    with pytest.raises(ValueError, match="icm is set; curiosity would reward fresh steps only"):
        IPGLearner(make_model(), icm={})
