from __future__ import annotations

import threading

import pytest
import torch

from surreal.learner.losses import TargetNetwork, UpdateNoise
from surreal.model import QFunction


def made() -> QFunction:
    model = QFunction(hiddens=[8], action_space=2, seed=0)
    model(torch.zeros(1, 4))
    return model


def shift(model: QFunction, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def test_copies_every_period_updates() -> None:
    model = made()
    target = TargetNetwork(model, period=3)
    obs = torch.ones(1, 4)
    before = target(obs).clone()
    shift(model, 0.5)
    target.after_update(1)
    target.after_update(2)
    assert torch.equal(target(obs), before)
    target.after_update(3)
    assert torch.equal(target(obs), model(obs))
    assert not torch.equal(target(obs), before)


def test_soft_target_moves_by_tau_at_every_update() -> None:
    model = made()
    target = TargetNetwork(model, tau=0.1)
    start = {name: tensor.clone() for name, tensor in model.tensors().items()}
    shift(model, 1.0)
    for update in range(1, 3):
        target.after_update(update)
    for name, tensor in target.network.tensors().items():
        torch.testing.assert_close(tensor, start[name] + 1.0 - 0.9**2)


def test_has_its_own_parameters_and_lock_and_takes_no_gradient() -> None:
    model = made()
    target = TargetNetwork(model, tau=1.0)
    assert target.network.lock is not model.lock
    assert isinstance(target.network.lock, type(threading.RLock()))
    assert not any(parameter.requires_grad for parameter in target.network.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    shift(model, 1.0)
    assert not torch.equal(target(torch.ones(1, 4)), model(torch.ones(1, 4)))


@pytest.mark.parametrize(
    ("period", "tau", "message"),
    [
        (0, None, "period is 0; it must be >= 1"),
        (1, 0.0, r"tau is 0.0; it must be in \(0, 1\]"),
        (1, 1.5, r"tau is 1.5; it must be in \(0, 1\]"),
    ],
)
def test_settings_out_of_range_are_refused(period: int, tau: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TargetNetwork(made(), period=period, tau=tau)
    with pytest.raises(ValueError, match=message):
        TargetNetwork.check(period, tau)


def test_the_noise_of_an_update_depends_on_seed_and_update_alone() -> None:
    device = torch.device("cpu")

    def drawn(seed: int, update: int) -> torch.Tensor:
        noise = UpdateNoise(seed, device)
        torch.rand(3, generator=noise.of(update + 1))
        return torch.rand(1000, generator=noise.of(update))

    streams = torch.stack([drawn(seed, update) for seed in range(4) for update in range(4)])
    assert torch.equal(drawn(2, 3), streams[2 * 4 + 3])
    correlation = torch.corrcoef(streams) - torch.eye(len(streams))
    assert correlation.abs().max() < 0.15  # 1000 numbers: 1 / sqrt(1000) is one deviation
