"""What a learner that diverged goes on from, and when its run ends instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.checkpoint import CheckpointStore, RunCheckpoints
from surreal.base.errors import DivergedError
from surreal.base.types import Batch, SampleInfo
from surreal.config import load_config
from surreal.distributed.parameters.published import encode_parameters
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.run.session.checkpointing import Checkpointing
from surreal.run.session.publishing import GOOD_UPDATES, Publishing, Rollback
from tests.unit.run.session.fakes import FakeBroadcaster, FakeReplay


class BroadcasterWithMemory(FakeBroadcaster):
    kept: dict[str, torch.Tensor] | None = None
    message = '{"updates": 3, "global_step": 5}'

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def restore(self) -> bool:
        if self.kept is None:
            return False
        self._model.load_tensors(self.kept, self.version)
        return True

    def broadcast(self, model: Any, message: str) -> int:
        encode_parameters(model.tensors())  # as the real one does first: it refuses what is not finite
        version = super().broadcast(model, message)
        self.kept = {name: tensor.clone() for name, tensor in model.tensors().items()}
        model.version = version
        return version


class Bench:
    """A DQN learner with all that is around it, but for Redis."""

    def __init__(self, folder: Path) -> None:
        config, replay, self.model = load_config("cartpole-dqn"), FakeReplay(), QFunction([6], action_space=2, seed=0)
        self.broadcaster = BroadcasterWithMemory(self.model)
        self.learner = DQNLearner(self.model)
        self.store = RunCheckpoints(CheckpointStore(folder))
        shared: Any = (self.learner, replay, self.broadcaster)
        self.checkpoints = Checkpointing(config, *shared, self.store)
        self.publishing = Publishing(config, None, self.model, *shared)  # type: ignore[arg-type]
        self.rollback = Rollback(self.learner, self.checkpoints, self.publishing)

    def learn(self, updates: int) -> None:
        rng = np.random.default_rng(self.learner.updates)
        for i in range(updates):
            obs = torch.tensor(rng.normal(size=(2, 8, 4)), dtype=torch.float32)
            numbers = np.arange(8)
            info = SampleInfo(numbers, np.full(8, 1 / 8), numbers)
            ones = torch.ones(8)
            self.learner.optimize(i, Batch(obs[0], torch.zeros(8, dtype=torch.long), ones, ones / 2, obs[1], {}, info))

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.learner.state_dict()["tensors"].items()}

    def diverge(self) -> None:
        with torch.no_grad():
            self.model.q.output.bias.fill_(torch.nan)
            self.learner.target.network.q.output.bias.fill_(torch.nan)
        for write in (self.publishing.publish, self.checkpoints.save):
            with pytest.raises(DivergedError) as caught:
                write()
        self.rollback.after(caught.value)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_learner_goes_back_to_its_newest_checkpoint_and_no_count_decreases(bench: Bench) -> None:
    bench.learn(5)
    bench.publishing.publish()
    bench.checkpoints.save()
    saved = bench.tensors()
    bench.learn(4)
    bench.publishing.publish()
    bench.diverge()
    assert same(bench.tensors(), saved)
    assert (bench.learner.updates, bench.rollback.count) == (9, 1)
    assert (bench.broadcaster.version, bench.model.version) == (3, 3)  # everyone has what it goes on with
    bench.learn(1)
    bench.checkpoints.save()
    assert bench.store.names()[-1] == "0000000010.safetensors"


def test_without_a_checkpoint_it_goes_back_to_what_was_broadcast_last_with_an_optimizer_as_new(bench: Bench) -> None:
    bench.learn(5)
    bench.publishing.publish()
    broadcast = {f"model/{name}": tensor.clone() for name, tensor in bench.model.tensors().items()}
    bench.learn(4)
    bench.diverge()
    expected = {**broadcast, **{name.replace("model/", "target/"): tensor for name, tensor in broadcast.items()}}
    assert same(bench.tensors(), expected)
    bench.learn(1)
    assert bench.learner.updates == 10


def test_good_parameters_that_nobody_has_yet_are_kept_when_the_gradients_diverge(bench: Bench) -> None:
    bench.learn(3)
    before = bench.model.tensors()["q.output.bias"].clone()
    bench.rollback.after(DivergedError("the gradients of 51 updates in a row are not finite"))
    assert torch.equal(bench.model.tensors()["q.output.bias"], before)
    assert bench.broadcaster.version == 1


def test_without_anything_good_the_run_ends_with_the_reason(bench: Bench) -> None:
    bench.learn(3)
    with pytest.raises(DivergedError, match="holds nan or an infinity; there are no good parameters to go back to"):
        bench.diverge()


def test_learner_that_diverges_again_too_soon_ends_the_run(bench: Bench) -> None:
    bench.learn(2)
    bench.publishing.publish()
    bench.diverge()
    bench.learner.updates += GOOD_UPDATES - 1
    with pytest.raises(DivergedError, match=r"again, 999 updates after it went back to the parameters of version 1: "):
        bench.diverge()


def test_learner_that_was_good_for_long_may_go_back_again_but_not_to_the_same_checkpoint(bench: Bench) -> None:
    bench.learn(2)
    bench.checkpoints.save()
    bench.diverge()
    bench.learner.updates += GOOD_UPDATES
    bench.checkpoints.save()
    bench.learn(1)
    bench.diverge()
    assert bench.rollback.count == 2
    bench.learner.updates += GOOD_UPDATES
    with pytest.raises(DivergedError, match=r"went back to .*0000001002\.safetensors"):
        bench.diverge()
