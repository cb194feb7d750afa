"""What agents keep for each slot of a pool."""

from __future__ import annotations

import numpy as np
import torch

from surreal.agent import SlotMemory


def take(memory: SlotMemory, slots: list[int], first: list[int] | None = None) -> list[float]:
    is_first = np.isin(slots, first or [])
    return memory.take(np.array(slots), is_first)[:, 0].tolist()


def test_each_slot_has_its_own_until_its_episode_ends() -> None:
    memory = SlotMemory((1,), torch.device("cpu"))
    assert take(memory, [3, 0]) == [0.0, 0.0]
    memory.put(np.array([3, 0]), torch.tensor([[30.0], [1.0]]))
    assert take(memory, [0, 3]) == [1.0, 30.0]
    assert take(memory, [3, 0], first=[3]) == [0.0, 1.0]
    assert take(memory, [9, 3]) == [0.0, 30.0]  # it grew, and forgot nothing


def test_what_was_taken_is_a_copy() -> None:
    memory = SlotMemory((2, 2), torch.device("cpu"))
    taken = memory.take(np.array([0]), np.array([False]))
    memory.put(np.array([0]), torch.ones(1, 2, 2))
    assert not taken.any()
