"""Running returns: with them, the filter of rewards is `VecNormalize`, however short trajectories are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from surreal.agent import AgentLoop
from surreal.agent.slots import CARRIED_RETURN, RunningReturns
from surreal.base.types import Action
from surreal.model.filters import ReturnFilter
from tests.unit.agent.test_loop import FIRST, LAST, MID, FakePool, FakeSender, make_batch

GAMMA, ENVS = 0.9, 3


class VecNormalize:
    """The scale of rewards that stable_baselines3.common.vec_env.VecNormalize has, over all steps so far."""

    def __init__(self) -> None:
        self.returns, self.seen = np.zeros(ENVS), list[float]()

    def step(self, reward: np.ndarray, done: np.ndarray) -> None:
        self.returns = self.returns * GAMMA + reward
        self.seen += self.returns.tolist()
        self.returns[done] = 0.0

    @property
    def scale(self) -> float:
        return float(np.sqrt(np.var(self.seen) + 1e-8))


@pytest.mark.parametrize("length", [1, 4, 50])
def test_filter_of_rewards_is_vec_normalize_however_short_trajectories_are(length: int) -> None:
    rng, theirs, ours = np.random.default_rng(0), VecNormalize(), ReturnFilter()
    running, slots = RunningReturns(GAMMA), np.arange(ENVS)
    is_first, before = np.ones(ENVS, bool), np.zeros(ENVS, np.float32)
    for _ in range(200 // length):
        rows = []
        for _ in range(length):
            carried = running.carry(slots, is_first, before)
            reward = rng.normal(1.0, 1.0, ENVS).astype(np.float32)
            is_first = rng.random(ENVS) < 0.1
            theirs.step(reward, is_first)
            rows.append((reward, GAMMA * ~is_first, np.ones(ENVS, bool), carried))
            before = reward
        ours.update(*(torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)))
        assert float(ours.moments.deviation()) == pytest.approx(theirs.scale, rel=1e-5)


@pytest.mark.parametrize("scales_rewards", [True, False])
def test_returns_are_recorded_only_where_the_model_scales_rewards(scales_rewards: bool) -> None:
    class Doing:
        model: Any = SimpleNamespace(scales_rewards=scales_rewards, version=1)
        global_step = 0
        wants_outcomes = False

        def act_batch(self, obs: Any, explore: Any, slots: Any, *_: Any) -> Action:
            return Action(np.zeros(len(explore)), {"value": np.zeros(len(explore), np.float32)}, 1)

    batches = [
        make_batch([FIRST, FIRST], [0, 1])._replace(reward=np.array([9.0, 9.0], np.float32)),
        make_batch([MID, MID], [0, 1])._replace(reward=np.array([1.0, 2.0], np.float32)),
        make_batch([LAST, MID], [0, 1])._replace(reward=np.array([5.0, 3.0], np.float32)),
        make_batch([FIRST, MID], [0, 1])._replace(reward=np.array([7.0, 4.0], np.float32)),
    ]
    sender = FakeSender([])
    loop = AgentLoop(cast(Any, FakePool(batches, [])), cast(Any, Doing()), cast(Any, sender), gamma=0.5)
    for _ in range(4):
        loop.step()
    recorded = [action.extras.get(CARRIED_RETURN) for _, action in sender.sent]
    if not scales_rewards:
        assert recorded == [None] * 4
        return
    assert [column.tolist() for column in recorded if column is not None] == [
        [0.0, 0.0],
        [0.5, 1.0],
        [2.0],
        [0.0, 3.0],
    ]
