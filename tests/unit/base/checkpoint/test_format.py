"""The state of random generators in a checkpoint: they continue where the checkpoint left them."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from surreal.base.checkpoint.format import random_state, set_random_state


def draw(generator: np.random.Generator) -> list[float]:
    return [generator.random(), random.random(), float(np.random.random()), float(torch.rand(()))]  # noqa: NPY002


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_all_of_them_go_on_where_they_were(bits: type[np.random.BitGenerator]) -> None:
    generator = np.random.Generator(bits(1))
    draw(generator)
    text = json.dumps(random_state(generator))
    expected = [draw(generator) for _ in range(3)]
    other = np.random.Generator(bits(2))
    set_random_state(json.loads(text), other)
    assert [draw(other) for _ in range(3)] == expected


def test_what_is_of_no_use_is_refused() -> None:
    state = random_state(np.random.default_rng(0))
    with pytest.raises(ValueError, match="cannot be used"):
        set_random_state({}, np.random.default_rng(0))
    with pytest.raises(ValueError):
        set_random_state(state, np.random.Generator(np.random.MT19937(0)))
