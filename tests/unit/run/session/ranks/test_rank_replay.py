"""A rank's replay: batches for all or none, and what rank 0 has the say in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.errors import DivergedError, StoppedError
from surreal.base.types import Batch, SampleInfo
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.run.session.ranks.replay import RankReplay
from tests.meeting import together


def batch(seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    numbers = np.arange(8)
    return Batch(
        obs=torch.randn(8, 4, generator=random),
        action=torch.zeros(8, dtype=torch.int64),
        reward=torch.rand(8, generator=random),
        discount=torch.ones(8),
        next_obs=torch.randn(8, 4, generator=random),
        extras={},
        sample_info=SampleInfo(numbers, np.ones(8), np.zeros(8, np.int64)),
    )


class Source:
    """A replay that has batches when it is told so, and notes what is asked of it."""

    wants_priorities = False

    def __init__(self, ready: int = 1000, global_step: int = 0) -> None:
        self.ready = ready
        self.global_step = global_step
        self.handed = 0
        self.commits: list[tuple[int, int]] = []  # version, and batches handed out before it

    def has_batch(self, timeout_s: float) -> bool:
        return self.handed < self.ready

    def dequeue(self, timeout_s: float) -> Batch:
        self.handed += 1
        return batch(self.handed)

    def commit(self, version: int) -> None:
        self.commits.append((version, self.handed))


def other_state() -> dict[str, Any]:
    other = DQNLearner(QFunction([8], action_space=2, seed=3))
    other.optimize(0, batch(0))
    return other.state_dict()


def made(rank: Any, source: Source, **options: Any) -> tuple[RankReplay, DQNLearner]:
    replay = RankReplay(rank, source, **options)  # type: ignore[arg-type]
    learner = DQNLearner(QFunction([8], action_space=2, seed=rank.rank), replay, initial_learning_rate=0.01)
    replay.attach(learner)
    return replay, learner


def test_a_batch_is_handed_out_only_when_all_ranks_have_one() -> None:
    def work(rank: Any) -> tuple[int, int]:
        source = Source(ready=2 if rank.rank else 5)
        replay, learner = made(rank, source)
        for i in range(4):
            if (found := replay.next_batch(0.01)) is not None:
                learner.optimize(i, found)
        return source.handed, learner.updates

    assert together(2, work) == [(2, 2), (2, 2)]


def test_all_begin_with_the_state_of_rank_0_and_stay_equal() -> None:
    """Rank 0 has restored a checkpoint, optimizer included; the others have another model yet."""

    def work(rank: Any) -> dict[str, torch.Tensor]:
        replay, learner = made(rank, Source())
        if rank.is_first:
            learner.load_state_dict(other_state())
        for i in range(3):
            found = replay.next_batch(0.01)
            assert found is not None
            learner.optimize(i, found)
        assert learner.updates == 4
        return learner.state_dict()["tensors"]

    first, second = together(2, work)
    assert first.keys() == second.keys()
    assert any(name.startswith("optimizer/") for name in first)
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_env_steps_are_the_same_for_all_in_an_update() -> None:
    def work(rank: Any) -> list[int]:
        source = Source(global_step=100 * (rank.rank + 1))
        replay, learner = made(rank, source)
        seen = []
        for _ in range(3):
            replay.next_batch(0.01)
            seen.append(learner.global_step)
            source.global_step += 10 * (rank.rank + 1)
        return seen

    assert together(2, work) == [[100, 110, 120]] * 2


def test_a_batch_is_committed_with_the_version_that_came_of_it_and_no_later_one() -> None:
    version = [0]

    def work(rank: Any) -> list[tuple[int, int]]:
        source = Source()
        replay, learner = made(rank, source, version=lambda: version[0])
        for i in range(3):
            found = replay.next_batch(0.01)
            assert found is not None
            learner.optimize(i, found)
            if rank.is_first:
                version[0] += 1
        if rank.is_first:
            replay.end()
        else:
            with pytest.raises(StoppedError):
                replay.next_batch(0.01)
            assert learner.model.version == 3
        return source.commits

    first, second = together(2, work)
    assert first == []  # rank 0 commits when it publishes
    assert second == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_rank_that_is_told_to_end_ends_all() -> None:
    def work(rank: Any) -> int:
        replay, learner = made(rank, Source(), stop=lambda: rank.rank == 1 and learner.updates == 2)
        with pytest.raises(StoppedError):
            for i in range(10):
                found = replay.next_batch(0.01)
                assert found is not None
                learner.optimize(i, found)
        replay.end()  # nobody is left to be told
        return learner.updates

    assert together(3, work) == [2, 2, 2]


def test_a_rank_that_diverged_goes_on_only_if_rank_0_has_gone_back() -> None:
    def work(rank: Any) -> dict[str, torch.Tensor]:
        replay, learner = made(rank, Source())
        for i in range(2):
            found = replay.next_batch(0.01)
            assert found is not None
            learner.optimize(i, found)
        if rank.is_first:
            learner.load_state_dict(other_state())
            replay.take_over_again()
        else:
            replay.after(DivergedError("not finite"))
        assert replay.next_batch(0.01) is not None
        return {name: tensor.clone() for name, tensor in learner.state_dict()["tensors"].items()}

    first, second = together(2, work)
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())

    def diverge_alone(rank: Any) -> None:
        replay, _ = made(rank, Source())
        assert replay.next_batch(0.01) is not None
        if rank.rank:
            replay.after(DivergedError("not finite"))
        replay.next_batch(0.01)

    with pytest.raises(DivergedError):
        together(2, diverge_alone)
