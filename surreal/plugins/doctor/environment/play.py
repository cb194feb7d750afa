"""Plays some episodes of random legal actions, which watchers look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.plugins.doctor.environment.faults import RAISES
from surreal.plugins.doctor.frame.finding import Finding
from surreal.run.process.ending import error_line

Env = gymnasium.Env[Any, Any]


class Shown(NamedTuple):
    """The results of a reset or a step."""

    obs: Any
    reward: Any  #: None at a reset
    terminated: bool
    truncated: bool
    info: Any
    took_s: float

    @property
    def is_reset(self) -> bool:
        return self.reward is None

    @property
    def is_end(self) -> bool:
        return self.terminated or self.truncated


class Watcher(Protocol):
    """Looks at every reset and step, and reports its findings at the end."""

    def see(self, shown: Shown) -> None:
        """Look at a reset or step."""

    def findings(self) -> Iterator[Finding]:
        """Yield the findings."""


class Budget(NamedTuple):
    """Limits of the random play."""

    time_s: float
    max_steps: int = 20_000


def play(
    env: Env,
    watchers: Sequence[Watcher],
    budget: Budget,
    *,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Finding]:
    """Play until the budget is used up, and yield the watchers' findings and an exception that ended it early.

    `seed` is that of the first episode and of the actions.
    """
    began_s = clock()
    problem: Finding | None = None
    what, steps = "reset", 0
    env.action_space.seed(seed)
    shown = Shown(None, None, True, False, {}, 0.0)  # as if an episode had ended
    try:
        while steps < budget.max_steps and clock() - began_s < budget.time_s:
            before_s = clock()
            if shown.is_end:
                what = "reset"
                obs, info = env.reset(seed=None if steps else seed)
                shown = Shown(obs, None, False, False, info, clock() - before_s)
            else:
                what = "step"
                action = random_action(env.action_space, shown.info)
                before_s = clock()
                obs, reward, terminated, truncated, info = env.step(action)
                shown = Shown(obs, reward, bool(terminated), bool(truncated), info, clock() - before_s)
                steps += 1
            for watcher in watchers:
                watcher.see(shown)
    except Exception as error:
        problem = RAISES.found(f"{what}, after {steps} steps: {error_line(error)}")
    for watcher in watchers:
        yield from watcher.findings()
    if problem is not None:
        yield problem


def random_action(space: gymnasium.Space[Any], info: Any) -> Any:
    """Draw an action: a legal one if the environment has a mask with legal actions, or else any."""
    mask = info.get("action_mask") if isinstance(info, dict) else None
    if mask is not None and isinstance(space, spaces.Discrete):
        legal = np.flatnonzero(np.asarray(mask).ravel()[: int(space.n)])
        if len(legal):
            return space.start + int(space.np_random.choice(legal))
    if mask is not None and isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        row = np.concatenate([np.ravel(part) for part in (mask if isinstance(mask, tuple | list) else (mask,))])
        parts = np.split(row.astype(np.bool_), np.cumsum(space.nvec)[:-1])
        if all(part.any() for part in parts):
            chosen = [int(space.np_random.choice(np.flatnonzero(part))) for part in parts]
            return space.start + np.array(chosen, space.dtype)
    return space.sample()
