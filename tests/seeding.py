"""Random numbers of tests: the same in each run, and in each order of the tests.

`seed_draws` seeds the global generators of Python, NumPy and torch, and what unseeded generators are seeded from:
`np.random.default_rng()`, `np.random.SeedSequence()` and the generators of gymnasium's spaces and environments. A space
that several tests share begins again in each of them. Other processes are not reached: they get a seed as arguments.
"""

from __future__ import annotations

import random
import sys
import zlib
from typing import Any

import numpy as np
from gymnasium import spaces

_seed_space = spaces.Space.seed
_turn = 0  # how often everything was seeded


def seed_draws(name: str) -> None:
    """Seed everything by a test's name."""
    global _turn
    _turn, seed = _turn + 1, zlib.crc32(name.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for code that draws from it
    np.random.bit_generator.randbits = random.Random(seed).getrandbits  # type: ignore[attr-defined]
    if "torch" in sys.modules:
        # Not `manual_seed`, which formats a traceback for each kind of device, in 5 ms.
        sys.modules["torch"].default_generator.manual_seed(seed)


def _seed(space: spaces.Space[Any], seed: Any = None) -> Any:
    space._seeded_in = _turn  # type: ignore[attr-defined]
    return _seed_space(space, seed)


def _generator(space: spaces.Space[Any]) -> np.random.Generator:
    if space._np_random is None or getattr(space, "_seeded_in", None) != _turn:
        space.seed()  # unseeded: of what `seed_draws` seeds
    generator: np.random.Generator = space._np_random  # type: ignore[assignment]
    return generator


def seed_spaces() -> None:
    """Have spaces follow `seed_draws`."""
    spaces.Space.seed = _seed  # type: ignore[method-assign,assignment]
    spaces.Space.np_random = property(_generator)  # type: ignore[method-assign,assignment]
