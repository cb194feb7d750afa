"""Action masks on their way from an environment to the learner's batches."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from naive_replay import pump_until

from surreal.agent import AgentLoop, QAgent
from surreal.base.pytorch import Module
from surreal.envs import LocalEnvPool

N = 5


def legal(shown: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mask that belongs to an observation: its number's bits; a final one may have none."""
    bits: np.ndarray[Any, Any] = (shown.astype(np.int64).reshape(-1, 1) >> np.arange(N)) % 2 == 1
    return bits


class Masked(gymnasium.Env[Any, Any]):
    """Shows random numbers, and ends or is cut by chance; it refuses what is not legal."""

    observation_space = spaces.Box(0, 2**N, (1,), np.float32)
    action_space = spaces.Discrete(N)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._show(low=1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.mask[action]
        terminated, truncated = self.np_random.random(2) < 0.1
        obs, info = self._show(low=0 if terminated else 1)
        return obs, 1.0, bool(terminated), bool(truncated), info

    def _show(self, *, low: int) -> tuple[Any, dict[str, Any]]:
        obs = np.array([self.np_random.integers(low, 2**N)], np.float32)
        self.mask = legal(obs)[0]
        return obs, {"action_mask": self.mask.astype(np.int8)}


class Zeros(Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(obs), N)


@pytest.mark.parametrize("n_step", [1, 3])
def test_masks_of_both_observations_come_with_each_transition(run: Any, n_step: int) -> None:
    pool = LocalEnvPool([Masked] * 3, seed=0)
    sender = run.sender(lookahead=n_step - 1, chunk_steps=20)
    loop = AgentLoop(pool, QAgent(Zeros(), 0.5, rng=np.random.default_rng(0)), sender)
    while loop.env_steps < 300:
        loop.step()
    assert sender.close()
    pool.close()
    steps = int(sender.metrics()["sender/steps_total"])
    replay = run.replay(n_step=n_step, start_size=1)
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= steps)
    alive = np.arange(replay.alive.start, replay.alive.stop)
    rows = replay.store.gather(alive, np.ones(len(alive)))
    np.testing.assert_array_equal(rows.extras["action_mask"], legal(rows.obs[0]))
    np.testing.assert_array_equal(rows.extras["next_action_mask"], legal(rows.next_obs[0]))
    assert rows.extras["action_mask"][np.arange(len(alive)), rows.action].all()
    assert len(alive) == steps > 250
