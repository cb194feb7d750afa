"""R2D2: returns, rescaling and one update against naive loops; burn-in, episode ends and priorities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.learner import R2D2Learner
from surreal.learner.off_policy.r2d2 import n_step_returns, rescale, unscale
from surreal.model import QFunction

MakeTrajectories = Callable[..., TrajectoryBatch]


def model(seed: int = 0) -> QFunction:
    spec = ObsSpec.from_obs(np.zeros(4, np.float32))
    return QFunction((6,), action_space=2, use_lstm=True, lstm_size=5, obs_spec=spec, seed=seed)


def made(**args: Any) -> R2D2Learner:
    return R2D2Learner(model(), **{"initial_learning_rate": 0.01, "gradients_norm_clipping": None, **args})


@pytest.fixture
def batch(make_trajectories: MakeTrajectories) -> TrajectoryBatch:
    """T = 7, B = 3: one column goes through, one has a terminal step, one an episode that was cut, with its row."""
    found = make_trajectories(rows=7, columns=3)
    rng = np.random.default_rng(1)
    found.discount[3, 1], found.is_first[4, 1] = 0.0, True
    found.mask[4, 2], found.reward[4, 2], found.discount[4, 2], found.is_first[5, 2] = 0.0, 0.0, 0.0, True
    state = torch.tensor(rng.normal(size=(3, 2, 5)), dtype=torch.float32)
    return found._replace(initial_state={"state": state}, burn_in=2)


def naive_q(network: Any, batch: TrajectoryBatch) -> Tensor:
    """[T + 1, B, 2] values, one step after the other."""
    state, values = batch.initial_state["state"], []
    for t in range(len(batch.obs)):
        state = torch.where(batch.is_first[t][:, None, None], 0.0, state)
        q, state = network(batch.obs[t], state)
        values.append(q)
    return torch.stack(values)


def naive_return(batch: TrajectoryBatch, value: Any, t: int, b: int, n: int) -> float:
    if n == 0 or t == len(batch.reward) or batch.mask[t, b] == 0.0:
        return float(value[t, b])
    following = naive_return(batch, value, t + 1, b, n - 1)
    return float(batch.reward[t, b]) + float(batch.discount[t, b]) * following


@pytest.mark.parametrize("n", [1, 3, 20])
def test_returns_are_those_of_a_naive_recursion(batch: TrajectoryBatch, n: int) -> None:
    value = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    returns = n_step_returns(batch.reward, batch.discount, batch.mask, value, n)
    for t, b in np.ndindex(7, 3):
        assert returns[t, b].item() == pytest.approx(naive_return(batch, value, t, b, n), rel=1e-5), (t, b)


def test_rescaling_is_undone() -> None:
    x = torch.tensor([-300.0, -1.0, -1e-3, 0.0, 0.5, 20.0, 4000.0])
    expected = [math.copysign(math.sqrt(abs(v) + 1) - 1, v) + 1e-3 * v for v in x.tolist()]
    torch.testing.assert_close(rescale(x), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(unscale(rescale(x)), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rescales", [False, True])
def test_one_update_is_the_formula(batch: TrajectoryBatch, rescales: bool) -> None:
    reference, target = model(), model(seed=5)
    learner = made(n_step=3, rescale_values=rescales, huber_delta=0.5)
    learner.build()
    learner.is_ready = True
    learner.target.network.load_tensors(target.tensors())
    learner.optimize(0, batch)

    q = naive_q(reference, batch)
    with torch.no_grad():
        next_q = naive_q(target, batch)
        value = next_q.gather(2, q.argmax(2, keepdim=True)).squeeze(2)
        value = unscale(value) if rescales else value
    loss, count, largest = torch.zeros(()), 0, -math.inf
    for t in range(2, 7):
        for b in range(3):
            if batch.mask[t, b]:
                goal = torch.tensor(naive_return(batch, value, t, b, 3))
                goal = rescale(goal) if rescales else goal
                error = (goal - q[t, b, batch.action[t, b]]).abs()
                loss = loss + (0.5 * error**2 if error <= 0.5 else 0.5 * (error - 0.25))
                largest = max(largest, q[t, b, batch.action[t, b]].item())
                count += 1
    assert count == 14
    assert learner.reading["loss"] == pytest.approx((loss / count).item(), rel=1e-4)
    assert learner.reading["q_max"] == pytest.approx(largest, rel=1e-4)


def test_the_burn_in_has_no_gradient_but_its_state_counts(batch: TrajectoryBatch) -> None:
    learner = made()
    learner.build()
    obs = batch.obs.clone().requires_grad_()
    q, _, _ = learner.estimate(batch._replace(obs=obs))
    q.sum().backward()  # type: ignore[no-untyped-call]
    assert obs.grad is not None
    assert not obs.grad[:2].any()
    assert obs.grad[2:5].any()
    other = batch._replace(obs=torch.cat((batch.obs[:1] + 1.0, batch.obs[1:])))
    assert not torch.allclose(learner.estimate(other).q, q)


def test_forbidden_actions_are_no_bootstrap(batch: TrajectoryBatch) -> None:
    learner = made(n_step=1, rescale_values=False)
    learner.build()
    legal = torch.ones(7, 3, 2, dtype=torch.bool)
    best = naive_q(learner.model, batch)[1:].argmax(2)
    legal.scatter_(2, best.unsqueeze(2), torch.zeros_like(best.unsqueeze(2), dtype=torch.bool))
    masked = learner.estimate(batch._replace(extras={"next_action_mask": legal})).target
    other = naive_q(learner.model, batch)[1:].gather(2, 1 - best.unsqueeze(2)).squeeze(2)
    expected = batch.reward + batch.discount * other
    is_step = batch.mask[2:] > 0
    torch.testing.assert_close(masked[is_step], expected[2:][is_step])


def test_sequences_get_priorities_of_their_largest_and_their_mean_error(batch: TrajectoryBatch) -> None:
    class Replay:
        global_step, wants_priorities = 0, True

        def update_priorities(self, sample_info: Any, priorities: Any) -> None:
            self.priorities = priorities

    replay = Replay()
    learner = R2D2Learner(model(), replay)
    learner.build()
    q, target, mask = learner.estimate(batch)
    learner.is_ready = True
    learner.optimize(0, batch)
    for b in range(3):
        errors = [abs((target - q)[t, b].item()) for t in range(5) if mask[t, b]]
        expected = 0.9 * max(errors) + 0.1 * sum(errors) / len(errors)
        assert replay.priorities[b] == pytest.approx(expected, rel=1e-4)


def test_a_model_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="use_lstm"):
        R2D2Learner(QFunction(action_space=2))


def test_importance_weights_scale_the_loss_of_each_sequence(batch: TrajectoryBatch) -> None:
    weight = torch.tensor([1.0, 0.25, 0.5])
    learner, reference = made(metrics_interval=1), made()
    for each in (learner, reference):
        each.build()
    q, target, mask = reference.estimate(batch)
    expected = 0.0
    for t, b in np.ndindex(*mask.shape):
        error = abs((target - q)[t, b].item())
        huber = 0.5 * error**2 if error <= 1.0 else error - 0.5
        expected += weight[b].item() * huber * mask[t, b].item()
    learner.is_ready = True
    found = learner.learn(0, batch._replace(extras={**batch.extras, "weight": weight}))
    assert torch.as_tensor(found["loss"]).item() == pytest.approx(expected / mask.sum().item(), rel=1e-5)
