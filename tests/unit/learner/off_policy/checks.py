"""What the tests of off-policy actor-critics ask of every learner: its gradients, and that checkpoints keep all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.checkpoint import CheckpointStore
from surreal.base.types import Batch
from surreal.learner import Learner

BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 10], np.float32))
HALF = torch.tensor([2.0, 5.0])


def transitions(obs: Tensor, action: Tensor, reward: Tensor) -> Batch:
    """Make a batch of episodes of one step."""
    info: Any = None
    return Batch(obs, action, reward, torch.zeros(len(obs)), obs, {}, info)


def one_step_task(best: Tensor, generator: torch.Generator) -> Batch:
    """Draw 128 actions of `BOX`, rewarded by -|a - a*|^2: a* is `best` plus the first numbers of the observation."""
    obs = torch.rand(128, 4, generator=generator) - 0.5
    action = torch.from_numpy(BOX.low) + 2 * HALF * torch.rand(128, 2, generator=generator)
    return transitions(obs, action, -((action - best - obs[:, :2]) / HALF).square().sum(1))


def tensors_of(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_dict()["tensors"].items()}


def assert_goes_on_bit_for_bit(make: Callable[[], Learner], batches: list[Batch], path: Path) -> None:
    """Check that a learner saved half-way, restored in a fresh one and continued equals one without interruption."""
    whole, first = make(), make()
    half = len(batches) // 2
    for i, batch in enumerate(batches):
        whole.optimize(i, batch)
    for i, batch in enumerate(batches[:half]):
        first.optimize(i, batch)
    store = CheckpointStore(path)
    state = first.state_dict()
    store.save(half, state["tensors"], {"learner": state["state"]})
    loaded = store.newest_whole()
    assert loaded is not None
    second = make()
    second.load_state_dict({"tensors": loaded.tensors, "state": loaded.metadata["learner"]})
    for i, batch in enumerate(batches[half:], half):
        second.optimize(i, batch)
    expected, found = tensors_of(whole), tensors_of(second)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


def finite_differences(loss: Callable[[], Tensor], parameters: Iterable[Tensor], step: float = 1e-2) -> list[Tensor]:
    """Differentiate a scalar by central differences, one number of each parameter at a time."""
    found = []
    for parameter in parameters:
        slopes = torch.zeros_like(parameter)
        for place in range(parameter.numel()):
            sides = []
            for side in (step, -2 * step):
                with torch.no_grad():
                    parameter.view(-1)[place] += side
                    sides.append(loss().double())
            with torch.no_grad():
                parameter.view(-1)[place] += step
            slopes.view(-1)[place] = (sides[0] - sides[1]) / (2 * step)
        found.append(slopes)
    return found
