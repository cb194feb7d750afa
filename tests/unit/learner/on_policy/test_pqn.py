"""PQN: its targets and one update against naive loops; ends of episodes, memory, legal actions and minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.errors import ConfigError
from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.config import load_config
from surreal.learner import PQNLearner
from surreal.model import NoisyQFunction, QFunction
from surreal.run.build.check import check_names

ROWS, COLUMNS, ACTIONS = 7, 3, 2
MakeTrajectories = Callable[..., TrajectoryBatch]


def model(seed: int = 0, **options: Any) -> QFunction:
    spec = ObsSpec.from_obs(np.zeros(4, np.float32))
    return QFunction((6,), action_space=ACTIONS, obs_spec=spec, seed=seed, norm="layer", **options)


def ready(network: QFunction, **options: Any) -> PQNLearner:
    learner = PQNLearner(network, **{"initial_learning_rate": 0.01, **options})
    learner.become_ready()
    return learner


@pytest.fixture
def batch(make_trajectories: MakeTrajectories) -> TrajectoryBatch:
    """One column goes through, one has a terminal step, one an episode that was cut, with its row."""
    found = make_trajectories(rows=ROWS, columns=COLUMNS)
    found.discount[3, 1], found.is_first[4, 1] = 0.0, True
    found.mask[4, 2], found.reward[4, 2], found.discount[4, 2], found.is_first[5, 2] = 0.0, 0.0, 0.0, True
    return found._replace(initial_state={}, extras={}, burn_in=0)


def with_state(batch: TrajectoryBatch) -> TrajectoryBatch:
    state = torch.randn(COLUMNS, 2, 5, generator=torch.Generator().manual_seed(1))
    return batch._replace(initial_state={"state": state})


def naive_q(network: QFunction, batch: TrajectoryBatch) -> Tensor:
    """[T + 1, B, n_actions] values, one row after the other."""
    state, values = batch.initial_state.get("state"), []
    for t in range(ROWS + 1):
        if state is None:
            values.append(network(batch.obs[t]))
            continue
        q, state = network(batch.obs[t], torch.where(batch.is_first[t][:, None, None], 0.0, state))
        values.append(q)
    return torch.stack(values)


def naive_return(batch: TrajectoryBatch, q: Tensor, t: int, b: int, trace_lambda: float) -> float:
    best = max(q[t, b].tolist())
    if t == ROWS or not batch.mask[t, b]:
        return best
    following = naive_return(batch, q, t + 1, b, trace_lambda)
    mixed = trace_lambda * following + (1.0 - trace_lambda) * max(q[t + 1, b].tolist())
    return float(batch.reward[t, b]) + float(batch.discount[t, b]) * mixed


@pytest.mark.parametrize("trace_lambda", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("use_lstm", [False, True])
def test_targets_are_those_of_a_naive_recursion(batch: TrajectoryBatch, trace_lambda: float, use_lstm: bool) -> None:
    network = model(use_lstm=use_lstm, lstm_size=5)
    batch = with_state(batch) if use_lstm else batch
    target = ready(network, trace_lambda=trace_lambda).targets(batch)
    q = naive_q(network, batch)
    for t, b in np.ndindex(ROWS, COLUMNS):
        assert target[t, b].item() == pytest.approx(naive_return(batch, q, t, b, trace_lambda), rel=1e-4), (t, b)


def test_a_cut_episode_bootstraps_and_a_terminated_one_does_not(batch: TrajectoryBatch) -> None:
    network = model()
    learner, q = ready(network, trace_lambda=1.0), naive_q(network, batch)
    target = learner.targets(batch)
    assert target[3, 1].item() == pytest.approx(batch.reward[3, 1].item())
    expected = batch.reward[3, 2] + 0.99 * q[4, 2].max()
    assert target[3, 2].item() == pytest.approx(expected.item(), rel=1e-5)


def test_targets_take_the_best_of_the_legal_actions(batch: TrajectoryBatch) -> None:
    network = model()
    learner, q = ready(network, trace_lambda=0.0), naive_q(network, batch)
    legal = torch.ones(ROWS, COLUMNS, ACTIONS, dtype=torch.bool)
    best = int(q[3, 0].argmax())
    legal[2, 0, best] = False
    legal[3, 1] = False  # after a terminal step, nothing is legal
    target = learner.targets(batch._replace(extras={"next_action_mask": legal}))
    assert target[2, 0].item() == pytest.approx((batch.reward[2, 0] + 0.99 * q[3, 0, 1 - best]).item(), rel=1e-5)
    assert target.isfinite().all()
    others = torch.ones_like(target, dtype=torch.bool)
    others[2, 0] = False
    torch.testing.assert_close(target[others], learner.targets(batch)[others])


@pytest.mark.parametrize("use_lstm", [False, True])
def test_one_update_is_the_formula(batch: TrajectoryBatch, use_lstm: bool) -> None:
    options = {"use_lstm": use_lstm, "lstm_size": 5}
    network, reference = model(**options), model(**options)
    batch = with_state(batch) if use_lstm else batch
    settings: dict[str, Any] = {"optimizer": "rmsprop", "gradients_norm_clipping": 0.01, "trace_lambda": 0.9}
    ready(network, epochs=2, mini_batch=None, **settings).optimize(0, batch)

    q = naive_q(reference, batch).detach()
    goals = {place: naive_return(batch, q, *place, 0.9) for place in np.ndindex(ROWS, COLUMNS) if batch.mask[place]}
    by_hand = torch.optim.RMSprop(reference.parameters(), lr=0.01, alpha=0.99, eps=0.01)
    for _ in range(2):  # the targets stay those before the first step
        q = naive_q(reference, batch)
        losses = [0.5 * (goal - q[t, b, batch.action[t, b]]) ** 2 for (t, b), goal in goals.items()]
        by_hand.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
        by_hand.step()
    for (name, found), expected in zip(network.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5, msg=name)


def test_metrics_are_means_of_the_last_epoch(batch: TrajectoryBatch) -> None:
    network = model()
    learner = ready(network, epochs=1, mini_batch=None)
    target, q = learner.targets(batch), naive_q(network, batch).detach()
    taken = q[:-1].gather(2, batch.action.unsqueeze(2)).squeeze(2)
    found, is_step = learner.optimize(0, batch), batch.mask > 0.0
    error = (target - taken)[is_step]
    assert found["loss"] == pytest.approx(0.5 * error.square().mean().item(), rel=1e-4)
    assert found["td_error_abs_mean"] == pytest.approx(error.abs().mean().item(), rel=1e-4)
    assert found["q_mean"] == pytest.approx(taken[is_step].mean().item(), rel=1e-4)


@pytest.mark.parametrize(("use_lstm", "steps"), [(False, 4 * 5), (True, 4 * 3)])
def test_each_epoch_takes_each_step_once(
    batch: TrajectoryBatch, use_lstm: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 steps in minibatches of 4; with a memory, of one trajectory each."""
    learner = ready(model(use_lstm=use_lstm, lstm_size=5), epochs=4, mini_batch=4)
    count, step = 0, learner.step

    def counting(loss: Tensor) -> None:
        nonlocal count
        count += 1
        step(loss)

    monkeypatch.setattr(learner, "step", counting)
    learner.optimize(0, with_state(batch) if use_lstm else batch)
    assert count == steps


def test_what_stands_in_rows_without_a_step_does_not_matter(batch: TrajectoryBatch) -> None:
    networks = []
    for scale in (1.0, 50.0):
        networks.append(model(use_lstm=True, lstm_size=5))
        changed = with_state(batch)._replace(reward=torch.where(batch.mask > 0.0, batch.reward, scale))
        ready(networks[-1]).optimize(0, changed)
    for first, second in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(first, second)


def test_a_memory_needs_the_state_that_the_agent_recorded(batch: TrajectoryBatch) -> None:
    with pytest.raises(ValueError, match="experience has no state"):
        ready(model(use_lstm=True)).optimize(0, batch)


def test_a_restored_learner_continues_bit_for_bit(make_trajectories: MakeTrajectories) -> None:
    first, second = (ready(model(), mini_batch=4) for _ in range(2))
    batches = [make_trajectories(seed)._replace(initial_state={}) for seed in range(3)]
    for i in range(2):
        first.optimize(i, batches[i])
    saved = first.state_dict()
    second.load_state_dict({**saved, "tensors": {key: tensor.clone() for key, tensor in saved["tensors"].items()}})
    for learner in (first, second):
        learner.optimize(2, batches[2])
    for name, tensor in first.model.tensors().items():
        assert torch.equal(tensor, second.model.tensors()[name]), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trace_lambda": 1.5}, r"trace_lambda is 1.5; it must be in \[0, 1\]"),
        ({"epochs": 0}, "epochs is 0; it must be >= 1"),
        ({"mini_batch": 0}, "mini_batch is 0; it must be >= 1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PQNLearner(model(), **options)


def test_noisy_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="the model is a NoisyQFunction, but PQNLearner draws no noise"):
        PQNLearner(NoisyQFunction(action_space=ACTIONS))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["learner.args.trace_lambda=2"], "trace_lambda is 2"),
        (["replay.class=surreal.replay.UniformReplay", "replay.args={}", "agent.round_steps=null"], "trajectories"),
    ],
)
def test_a_configuration_that_cannot_learn_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_names(load_config("cartpole-pqn", overrides))


@pytest.mark.slow
@pytest.mark.parametrize("use_lstm", [False, True])
def test_it_learns_which_action_is_right(make_trajectories: MakeTrajectories, use_lstm: bool) -> None:
    network = model(use_lstm=use_lstm, lstm_size=5)
    learner = ready(network, initial_learning_rate=0.02, epochs=4, mini_batch=64)

    def play(seed: int) -> TrajectoryBatch:
        found = make_trajectories(seed, rows=16, columns=16)
        right = (found.obs[:-1, :, 0] > 0.0).long()
        state = {"state": torch.zeros(16, 2, 5)} if use_lstm else {}
        return found._replace(reward=(found.action == right).float(), discount=found.discount / 2, initial_state=state)

    for i in range(20):
        learner.optimize(i, play(i))
    test = play(1000)
    with torch.no_grad():
        q = learner.values(test.obs[:-1], test.initial_state.get("state"), test.is_first[:-1])
    right = (test.obs[:-1, :, 0] > 0.0).long()
    assert (q.argmax(2) == right).float().mean() > 0.9  # by chance: 0.5
