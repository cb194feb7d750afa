"""Action masks: one entry for each discrete action, at least one of them true, in each step or in none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.envs.actions import ActionAdapter, flat_mask
from surreal.plugins.doctor.environment.faults import MASK_EMPTY, MASK_MISSING, MASK_SHAPE
from surreal.plugins.doctor.environment.play import Shown
from surreal.plugins.doctor.frame.finding import Finding, ok


class MaskWatcher:
    """Looks at `info["action_mask"]`.

    Args:
        space: the environment's actions.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        flat = ActionAdapter(space).space
        self._parts: list[int] = []  # choices of each discrete action
        if isinstance(flat, spaces.Discrete):
            self._parts = [int(flat.n)]
        elif isinstance(flat, spaces.MultiDiscrete):
            self._parts = [int(n) for n in flat.nvec.ravel()]
        self._with = self._without = self._empty = 0
        self._problem = ""

    def see(self, shown: Shown) -> None:
        mask = shown.info.get("action_mask") if isinstance(shown.info, dict) else None
        if mask is None or not self._parts:
            self._without += not shown.is_end
            return
        self._with += 1
        try:
            row = flat_mask(mask, sum(self._parts))
        except (EnvError, ValueError, TypeError) as error:
            self._problem = self._problem or str(error)
            return
        if not shown.is_end and not all(part.any() for part in np.split(row, np.cumsum(self._parts)[:-1])):
            self._empty += 1

    def findings(self) -> Iterator[Finding]:
        if not self._with:
            return
        seen = self._with + self._without
        if self._problem:
            yield MASK_SHAPE.found(self._problem)
        if self._empty:
            yield MASK_EMPTY.found(f"the action mask is all false in {self._empty:,} of {seen:,} steps")
        if self._without:
            yield MASK_MISSING.found(f"the action mask is missing in {self._without:,} of {seen:,} steps")
        if not (self._problem or self._empty or self._without):
            yield ok(f"action masks of {sum(self._parts)} choices in all of {seen:,} steps")
