"""A random play of an environment, and its watchers: episode ends, masks, rewards and speed."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.base.values import LARGEST
from surreal.envs.actions import ActionAdapter, flat_mask
from surreal.plugins.doctor.finding import Finding, fault, milliseconds, ok
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

    def findings(self) -> Iterator[Finding]: ...


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
        problem = fault("env-raises", f"{what}, after {steps} steps: {error_line(error)}")
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


#: Number of episodes with the same length that indicate a time limit, and its least length: short ones may be the task.
_SAME_EPISODES, _LEAST_LENGTH = 3, 30
#: Steps after which an episode without an end is reported.
_MANY_STEPS = 1000


class EndWatcher:
    """Counts the lengths of episodes, and the flags that end them."""

    def __init__(self) -> None:
        self._length = self._steps = 0
        self._terminated: Counter[int] = Counter()  # by length
        self._truncated: Counter[int] = Counter()
        self._both = 0

    def see(self, shown: Shown) -> None:
        if shown.is_reset:
            self._length = 0
            return
        self._length += 1
        self._steps += 1
        if shown.terminated:
            self._terminated[self._length] += 1
            self._both += shown.truncated
        elif shown.truncated:
            self._truncated[self._length] += 1

    def findings(self) -> Iterator[Finding]:
        terminated, truncated = self._terminated.total(), self._truncated.total()
        if not terminated + truncated:
            if self._steps >= _MANY_STEPS:
                yield fault("episode-without-end", f"no episode ended in {self._steps:,} steps")
            return
        if self._both:
            yield fault(
                "terminated-and-truncated", f"{self._both:,} of {terminated + truncated:,} episodes end with both flags"
            )
        length, count = self._terminated.most_common(1)[0] if terminated else (0, 0)
        if count == terminated >= _SAME_EPISODES and length >= _LEAST_LENGTH and not truncated:
            yield fault("time-limit-terminated", f"all of {count:,} episodes are terminated at step {length:,}")
        else:
            yield ok(f"{terminated:,} episodes ended by a terminal state, {truncated:,} by a time limit")


class MaskWatcher:
    """Checks `info["action_mask"]` against the space of actions."""

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
            yield fault("mask-of-other-shape", self._problem)
        if self._empty:
            yield fault("mask-without-action", f"the action mask is all false in {self._empty:,} of {seen:,} steps")
        if self._without:
            yield fault("mask-missing", f"the action mask is missing in {self._without:,} of {seen:,} steps")
        if not (self._problem or self._empty or self._without):
            yield ok(f"action masks of {sum(self._parts)} choices in all of {seen:,} steps")


_LARGE_REWARD = 1e3
#: Steps after which missing rewards are reported.
_MANY_REWARDED_STEPS = 200
#: Episodes after which returns that do not differ are reported.
_MANY_EPISODES = 10


class RewardWatcher:
    """Checks the rewards."""

    def __init__(self) -> None:
        self._steps = 0
        self._low, self._high = math.inf, -math.inf
        self._return, self._returns = 0.0, Counter[float]()  # of episodes
        self._bad = 0
        self._bad_text = ""

    def see(self, shown: Shown) -> None:
        if shown.is_reset:
            self._return = 0.0
            return
        self._steps += 1
        try:
            reward = float(shown.reward)
        except (TypeError, ValueError, OverflowError):
            self._note_bad(f"{shown.reward!r:.60}, of type {type(shown.reward).__name__}")
            return
        if not abs(reward) <= LARGEST:
            self._note_bad(f"{reward:g}")
            return
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        self._return += reward
        if shown.is_end:
            self._returns[self._return] += 1

    def findings(self) -> Iterator[Finding]:
        if self._bad:
            yield fault(
                "reward-not-finite", f"the reward is {self._bad_text} in {self._bad:,} of {self._steps:,} steps"
            )
        if self._steps == self._bad:
            return
        size = max(abs(self._low), abs(self._high))
        if size > _LARGE_REWARD:
            yield fault("reward-large", f"rewards are {self._low:,.0f} to {self._high:,.0f}")
        elif not size and self._steps >= _MANY_REWARDED_STEPS:
            yield fault("reward-always-zero", f"no reward other than 0 in {self._steps:,} steps of random actions")
        elif len(self._returns) == 1 and self._returns.total() >= _MANY_EPISODES:
            (value,) = self._returns
            yield fault("return-always-same", f"all {self._returns.total():,} episodes returned {value:.4g}")
        elif not self._bad:
            yield ok(f"rewards are {self._low:.3g} to {self._high:.3g}")

    def _note_bad(self, text: str) -> None:
        self._bad += 1
        self._bad_text = self._bad_text or text


_SLOW_PER_S = 50.0
#: A reset is slow if it takes this share of the time and this long, s.
_SLOW_SHARE, _SLOW_RESET_S = 0.5, 0.05


class SpeedWatcher:
    """Adds up the time of steps and of resets; the first reset may build what later ones use."""

    def __init__(self) -> None:
        self._steps = self._resets = 0
        self._steps_s = self._resets_s = self._first_reset_s = 0.0

    def see(self, shown: Shown) -> None:
        if not shown.is_reset:
            self._steps += 1
            self._steps_s += shown.took_s
        elif self._steps:
            self._resets += 1
            self._resets_s += shown.took_s
        else:
            self._first_reset_s = shown.took_s

    def findings(self) -> Iterator[Finding]:
        if not self._steps:
            return
        resets_s = self._resets_s if self._resets else self._first_reset_s
        reset_s, share = resets_s / max(self._resets, 1), resets_s / max(resets_s + self._steps_s, 1e-9)
        rate = self._steps / max(self._steps_s, 1e-9)
        said = f"{rate:,.0f} steps/s, a reset takes {milliseconds(reset_s)}, {share:.0%} of the time"
        is_slow_reset = self._resets > 0 and share > _SLOW_SHARE and reset_s > _SLOW_RESET_S
        found = [fault("reset-slow", said)] if is_slow_reset else []
        found += [fault("env-slow", said)] if rate < _SLOW_PER_S else []
        yield from found or [ok(said)]
