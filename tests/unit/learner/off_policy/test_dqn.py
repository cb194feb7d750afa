from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.checkpoint import CheckpointStore
from surreal.base.errors import CheckpointError
from surreal.base.types import Batch
from surreal.learner import DQNLearner, ReplayView
from surreal.model import NoisyQFunction, QFunction
from tests.unit.learner.off_policy.checks import assert_goes_on_bit_for_bit

MakeBatch = Callable[..., Batch]


def made(seed: int = 0, hiddens: tuple[int, ...] = (8,), replay: ReplayView | None = None, **args: Any) -> DQNLearner:
    return DQNLearner(QFunction(hiddens=hiddens, action_space=2, seed=seed), replay, **args)


def tensors_of(learner: DQNLearner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_dict()["tensors"].items()}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


class FakeReplay:
    """Takes priorities, knows the global step."""

    def __init__(self) -> None:
        self.global_step = 0
        self.wants_priorities = True
        self.calls: list[tuple[Any, np.ndarray]] = []

    def update_priorities(self, sample_info: Any, priorities: np.ndarray) -> None:
        self.calls.append((sample_info, priorities))


@pytest.mark.parametrize("double", [False, True])
def test_one_update_is_the_formula(make_batch: MakeBatch, double: bool) -> None:
    batch = make_batch(weight=0.5)
    learner = made(double=double, huber_delta=0.7, gradients_norm_clipping=None, initial_learning_rate=0.1)
    learner.optimize(0, batch)
    reference = QFunction(hiddens=(8,), action_space=2, seed=0)
    twin = QFunction(hiddens=(8,), action_space=2, seed=0)
    q, next_q = reference(batch.obs), twin(batch.next_obs).detach()
    loss = torch.zeros(())
    for row in range(len(batch.reward)):
        best = int(next_q[row].argmax())
        target = batch.reward[row] + batch.discount[row] * next_q[row, best]
        error = (target - q[row, batch.action[row]]).abs()
        loss = loss + 0.5 * (0.5 * error**2 if error <= 0.7 else 0.7 * (error - 0.35)) / len(batch.reward)
    optimizer = torch.optim.Adam(reference.parameters(), lr=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    for name, tensor in learner.model.tensors().items():
        torch.testing.assert_close(tensor, reference.tensors()[name], rtol=1e-4, atol=1e-6)
    metrics = learner.reading
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    taken = [q[row, batch.action[row]].item() for row in range(len(batch.reward))]
    assert metrics["q_max"] == pytest.approx(max(taken), rel=1e-5)


def test_double_lets_the_online_network_choose(make_batch: MakeBatch) -> None:
    batch = make_batch()
    learner = made(target_update_period=10**6, initial_learning_rate=1e-3)
    for i in range(30):
        learner.optimize(i, batch)
    _, target = learner.estimate(batch)
    with torch.no_grad():
        chosen = learner.model(batch.next_obs).argmax(1)
        value = learner.target(batch.next_obs)[range(16), chosen]
    torch.testing.assert_close(target, batch.reward + batch.discount * value)
    assert not torch.equal(value, learner.target(batch.next_obs).amax(1))


@pytest.mark.slow
@pytest.mark.parametrize("args", [{}, {"target_update_tau": 0.01}, {"optimizer": "RMSProp"}])
def test_learns_the_value_of_a_terminal_state(make_batch: MakeBatch, args: dict[str, Any]) -> None:
    batch = make_batch(rows=64)._replace(reward=torch.ones(64), discount=torch.zeros(64))
    learner = made(hiddens=(32,), initial_learning_rate=3e-3, **args)
    for i in range(400):
        learner.optimize(i, batch)
    q, _ = learner.estimate(batch)
    assert (q - 1.0).abs().max().item() < 0.1


def test_priorities_are_the_td_errors_of_their_rows(make_batch: MakeBatch) -> None:
    replay, batch = FakeReplay(), make_batch()
    learner = made(replay=replay)
    learner.model(batch.obs)
    learner.optimize(0, batch)
    fresh = QFunction(hiddens=(8,), action_space=2, seed=0)
    with torch.no_grad():
        target = batch.reward + batch.discount * fresh(batch.next_obs).amax(1)
        expected = (target - fresh(batch.obs)[range(16), batch.action]).abs()
    ((info, priorities),) = replay.calls
    assert info is batch.sample_info
    np.testing.assert_allclose(priorities, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_priorities_are_not_computed_for_a_replay_that_wants_none(make_batch: MakeBatch) -> None:
    replay = FakeReplay()
    replay.wants_priorities = False
    made(replay=replay).optimize(0, make_batch())
    assert replay.calls == []


@pytest.mark.parametrize("schedule_step", ["environment", "update"])
def test_learning_rate_falls_linearly_and_stays_at_its_end(make_batch: MakeBatch, schedule_step: str) -> None:
    replay = FakeReplay()
    learner = made(
        replay=replay,
        initial_learning_rate=1.0,
        learning_rate_end=0.2,
        use_linear_schedule=True,
        max_global_step=4,
        schedule_step=schedule_step,
        metrics_interval=1,
    )
    rates = []
    for i in range(7):
        replay.global_step = i if schedule_step == "environment" else 1000
        rates.append(learner.optimize(i, make_batch())["learning_rate"])
    assert rates == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])


def test_gradients_are_clipped_to_their_global_norm(make_batch: MakeBatch) -> None:
    huge = make_batch()._replace(reward=torch.full((16,), 1e4))
    learner = made(optimizer="rmsprop", huber_delta=1e6, gradients_norm_clipping=0.5)
    assert learner.optimize(0, huge)["gradient_norm"] > 0.5
    norm = torch.stack([parameter.grad.norm() for parameter in learner.model.parameters()]).norm()  # type: ignore[union-attr]
    assert norm.item() == pytest.approx(0.5, rel=1e-4)


def test_parameters_do_not_change_while_another_holds_the_lock(make_batch: MakeBatch) -> None:
    learner = made()
    learner.optimize(0, make_batch())
    before = tensors_of(learner)
    thread = threading.Thread(target=learner.optimize, args=(1, make_batch(1)), daemon=True)
    with learner.model.lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert all(torch.equal(tensor, before[f"model/{name}"]) for name, tensor in learner.model.tensors().items())
    thread.join(60.0)
    assert not thread.is_alive()
    assert learner.updates == 2


@pytest.mark.parametrize(
    "args",
    [
        {"target_update_period": 7},
        {"target_update_tau": 0.05},
        {"optimizer": "rmsprop"},
        {"use_linear_schedule": True, "max_global_step": 30, "schedule_step": "update"},
    ],
)
def test_restored_learner_goes_on_bit_for_bit(make_batch: MakeBatch, tmp_path: Path, args: dict[str, Any]) -> None:
    straight = made(**args)
    for i in range(20):
        straight.optimize(i, make_batch(i))
    interrupted = made(**args)
    for i in range(10):
        interrupted.optimize(i, make_batch(i))
    state = interrupted.state_dict()
    store = CheckpointStore(tmp_path)
    store.save(10, state["tensors"], {"learner": state["state"]})
    checkpoint = store.newest_whole()
    assert checkpoint is not None
    restored = made(seed=99, **args)  # without a shape, as in a new process
    restored.load_state_dict({"tensors": checkpoint.tensors, "state": checkpoint.metadata["learner"]})
    assert_same(tensors_of(restored), tensors_of(interrupted))
    for i in range(10, 20):
        restored.optimize(i, make_batch(i))
    assert restored.updates == 20
    assert_same(tensors_of(restored), tensors_of(straight))


def test_checkpoint_before_the_first_update_restores(make_batch: MakeBatch) -> None:
    learner, other = made(seed=1), made(seed=2)
    with pytest.raises(CheckpointError, match="no shape before its first batch"):
        learner.state_dict()
    learner.model(make_batch().obs)
    other.load_state_dict(learner.state_dict())
    other.optimize(0, make_batch())
    learner.optimize(0, make_batch())
    assert_same(tensors_of(other), tensors_of(learner))


def test_restoring_over_a_trained_learner_forgets_what_it_learned(make_batch: MakeBatch) -> None:
    fresh, trained = made(), made()
    fresh.model(make_batch().obs)
    start = {"tensors": tensors_of(fresh), "state": fresh.state_dict()["state"]}
    for i in range(3):
        trained.optimize(i, make_batch(i))
    trained.load_state_dict(start)
    fresh.optimize(0, make_batch())
    trained.optimize(0, make_batch())
    assert_same(tensors_of(trained), tensors_of(fresh))


def test_checkpoint_of_another_model_names_the_first_difference_and_changes_nothing(make_batch: MakeBatch) -> None:
    small, large = made(hiddens=(8, 8)), made(hiddens=(8, 9))
    for learner in (small, large):
        learner.optimize(0, make_batch())
    before = tensors_of(large)
    with pytest.raises(CheckpointError, match=r"model/\S+ is float32\[8, 8\], but this model has float32\[9, 8\]"):
        large.load_state_dict(small.state_dict())
    assert_same(tensors_of(large), before)
    state = small.state_dict()
    missing = [name for name in state["tensors"] if name.startswith("target/")][-1]
    del state["tensors"][missing]
    with pytest.raises(CheckpointError, match=f"no tensor {re.escape(missing)}"):
        made(hiddens=(8, 8)).load_state_dict(state)


def test_checkpoint_of_another_optimizer_or_learner_is_refused(make_batch: MakeBatch) -> None:
    adam, rmsprop = made(), made(optimizer="rmsprop")
    for learner in (adam, rmsprop):
        learner.optimize(0, make_batch())
    with pytest.raises(CheckpointError, match="optimizer/"):
        rmsprop.load_state_dict(adam.state_dict())
    state = adam.state_dict()
    state["state"]["learner"] = "PPOLearner"
    with pytest.raises(CheckpointError, match="of a PPOLearner, not of a DQNLearner"):
        made().load_state_dict(state)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"optimizer": "adamx"}, "optimizer is 'adamx'"),
        ({"initial_learning_rate": 0.0}, "initial_learning_rate is 0.0"),
        ({"learning_rate_end": -1.0}, "learning_rate_end"),
        ({"use_linear_schedule": True}, "max_global_step is None"),
        ({"schedule_step": "epoch"}, "schedule_step is 'epoch'"),
        ({"huber_delta": 0.0}, "huber_delta"),
        ({"target_update_period": 0}, "target_update_period is 0"),
        ({"target_update_tau": 2.0}, "target_update_tau is 2.0"),
        ({"gradients_norm_clipping": 0.0}, "gradients_norm_clipping"),
        ({"decay": 1.0}, "decay is 1.0"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"metrics_interval": 0}, "metrics_interval is 0"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**args)


@pytest.mark.parametrize("double", [False, True])
def test_an_illegal_action_is_never_bootstrapped_from(make_batch: MakeBatch, double: bool) -> None:
    batch, learner = make_batch(rows=2), made(double=double)
    learner.optimize(0, batch)
    with torch.no_grad():
        for network in (learner.model, learner.target.network):
            network.q.output.weight.zero_()  # type: ignore[union-attr]
            network.q.output.bias.copy_(torch.tensor([100.0, 1.0]))  # type: ignore[union-attr]
    batch = batch._replace(
        discount=torch.ones(2), extras={"next_action_mask": torch.tensor([[True, True], [False, True]])}
    )
    _, target = learner.estimate(batch)
    torch.testing.assert_close(target - batch.reward, torch.tensor([100.0, 1.0]))


def noisy(**args: Any) -> DQNLearner:
    return DQNLearner(NoisyQFunction(hiddens=(8,), action_space=2, seed=0), **args)


def test_both_networks_have_noise_of_their_own_in_each_update(make_batch: MakeBatch) -> None:
    learner, batch = noisy(), make_batch()
    learner.optimize(0, batch)
    seen = []
    for _ in range(2):
        learner.renew_noise()
        seen += [learner.model(batch.obs).detach(), learner.target(batch.obs)]
        learner.updates += 1
    assert not any(torch.equal(one, other) for i, one in enumerate(seen) for other in seen[:i])


def test_a_restored_noisy_learner_goes_on_bit_for_bit(make_batch: MakeBatch, tmp_path: Path) -> None:
    assert_goes_on_bit_for_bit(noisy, [make_batch(seed) for seed in range(10)], tmp_path)
