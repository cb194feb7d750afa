"""Where observations are is decided from contract and capacity; pinned batches hold the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.errors import ContractError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import SampleInfo
from surreal.distributed.experience.codec import Contract
from surreal.replay.batches import to_batch
from surreal.replay.state import choose
from surreal.replay.store.rows import rows_expected
from surreal.replay.store.storage import Gathered

ACTION = ArraySpec("action", (), np.dtype(np.int64))
FRAMES = Contract(ObsSpec.from_obs(np.zeros((84, 84), np.uint8)), ACTION, stack=4)
NEEDED = rows_expected(1000) * 84 * 84


@pytest.mark.parametrize(
    ("mode", "budget", "chosen"),
    [
        ("mirrored", 1, "mirrored"),
        ("remote", 1 << 40, "remote"),
        ("compressed", 1, "compressed"),
        ("auto", NEEDED, "mirrored"),
        ("auto", NEEDED - 1, "remote"),
    ],
)
def test_auto_mirrors_what_its_budget_holds(mode: Any, budget: int, chosen: str) -> None:
    assert choose(mode, FRAMES, capacity=1000, mirror_max_bytes=budget) == chosen


def test_observations_of_no_bytes_are_not_fetched() -> None:
    contract = Contract(ObsSpec.from_obs(np.zeros(0, np.float32)), ACTION)
    assert choose("remote", contract, capacity=10, mirror_max_bytes=1) == "mirrored"


def test_compressed_observations_are_mirrored_or_refused_with_the_remedy() -> None:
    contract = Contract(FRAMES.obs, ACTION, compression="zstd")
    assert choose("auto", contract, capacity=1000, mirror_max_bytes=NEEDED) == "mirrored"
    with pytest.raises(ContractError, match=r"compressed \(zstd\); use observations: mirrored"):
        choose("remote", contract, capacity=1000, mirror_max_bytes=NEEDED)
    with pytest.raises(ContractError, match=f"take {NEEDED} bytes, more than 5; raise mirror_max_bytes"):
        choose("auto", contract, capacity=1000, mirror_max_bytes=5)


def test_a_pinned_batch_asks_torch_for_pinned_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no GPU here, and torch pins nothing without one: only the calls are looked at."""
    pinned: list[torch.Tensor] = []
    empty = torch.empty

    def pinned_empty(*shape: Any, pin_memory: bool, **options: Any) -> torch.Tensor:
        assert pin_memory
        pinned.append(empty(*shape, **options))
        return pinned[-1]

    monkeypatch.setattr(torch, "empty", pinned_empty)
    zeros, ones = np.zeros(3, np.int64), np.ones(3)
    gathered = Gathered(
        [np.ones((3, 3))[:, :-1]],
        [np.ones((3, 3))[:, 1:]],
        zeros,
        ones,
        ones,
        zeros,
        {"x": ones},
        SampleInfo(zeros, ones, zeros),
    )
    spec = ObsSpec.from_obs(np.zeros(2))
    plain, copied = to_batch(gathered, spec), to_batch(gathered, spec, pin_memory=True)
    assert len(pinned) == 6
    assert all(tensor.is_contiguous() for tensor in pinned)
    assert torch.equal(plain.obs, copied.obs)
    assert plain.obs.numpy() is not copied.obs.numpy()
    assert torch.equal(plain.extras["x"], copied.extras["x"])
