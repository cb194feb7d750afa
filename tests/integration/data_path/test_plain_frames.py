"""The plain loop with stacked frames: each is stored once, and stacked again for the learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from naive_replay import pump_until

from surreal.envs import FrameStack, GymEnv


def test_sender_learns_of_the_stack_from_info_and_stores_frames_once(run: Any) -> None:
    sender, replay = run.sender(chunk_steps=1000), run.replay(batch_size=64)
    env = FrameStack(GymEnv("CartPole-v1"), 3)
    seen: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    obs, info = env.reset(seed=1)
    for step in range(120):
        new_obs, reward, done, info = env.step(step % 2)
        sender.send([obs, new_obs], step % 2, reward, done, info)
        if not info.get("phantom"):
            seen[obs[-1].tobytes()] = (obs, new_obs)
        obs = new_obs
    sender.flush()
    pump_until(replay, lambda: len(replay) == len(seen))
    assert replay.store.contract.stack == 3
    assert replay.store.contract.obs.leaves[0].shape == (4,)
    numbers = np.arange(replay.store.transitions.tail, replay.store.transitions.head)
    rows = replay.store.gather(numbers, np.ones(len(numbers)))
    assert rows.obs[0].shape == (len(seen), 3, 4)
    for found, found_next in zip(rows.obs[0], rows.next_obs[0], strict=True):
        expected, expected_next = seen[found[-1].tobytes()]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found_next, expected_next)
