"""The checks of an environment: gymnasium's checker, a random play, repeatability and leaks."""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import psutil
from gymnasium.error import Error
from gymnasium.utils.env_checker import check_env

from surreal.base import tree
from surreal.base.errors import SurrealError
from surreal.plugins.doctor.finding import Check, Finding, fault, ok
from surreal.plugins.doctor.observations import ObservationWatcher
from surreal.plugins.doctor.watchers import (
    Budget,
    EndWatcher,
    Env,
    MaskWatcher,
    RewardWatcher,
    Shown,
    SpeedWatcher,
    Watcher,
    play,
)

_SEED_REMEDY = "def reset(self, *, seed=None, options=None): super().reset(seed=seed)"
#: Messages of the checker: pattern, meaning ("" if it is harmless here, or another check reports it better), remedy.
_SAYINGS = (
    # Bounds of spaces that are usual; filters and squashing handle them.
    (r"probably too (low|high)|recommend using a symmetric|different from the unwrapped", "", ""),
    # Found by other checks, with values.
    (r"not within the observation space|numpy array dtype to be|share an object|reward is (a NaN|an inf)", "", ""),
    (r"non-deterministic|are not (equivalent|equal)", "the same seed does not repeat it exactly", _SEED_REMEDY),
    (
        r"does not call `super\(\)\.reset|random number generator to have been generated|not properly been updated",
        "reset does not seed the environment's own random numbers",
        _SEED_REMEDY,
    ),
    (r"`seed` (or|instead)|cannot be reset with a random seed", "reset takes no seed", _SEED_REMEDY),
    (r"`options`", "reset takes no options", _SEED_REMEDY),
    (r"default seed argument", "reset has a seed by default, so all episodes are the same", "seed=None"),
    (r"tuple of the form|2-tuple|should be `\(obs, info\)`", "reset does not return (obs, info)", "return both"),
    (
        r"four or five element|old step API",
        "step does not return its five values",
        "return obs, reward, terminated, truncated, info",
    ),
    (r"signal to be a boolean", "terminated or truncated is not a boolean", "bool(...) around what comes from numpy"),
    (r"reward returned by `step\(\)` must be", "a reward is not a plain number", "float(reward)"),
    (r"expecting a numpy array|should be an int or np.int64", "an observation is not an array", "np.asarray(x)"),
    (r"`info`.*dictionary|not a dictionary", "info is not a dictionary", "return {} without information"),
    (r"`seed` function is dropped|`return_info`", "it has parts of the old gym interface", "remove them"),
)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def checker(env: Env) -> Iterator[Finding]:
    """Ask gymnasium's checker about the bare environment."""
    problem = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except (AssertionError, Error, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}" if not str(error) else str(error)
    messages = [("gymnasium-checker", text) for text in dict.fromkeys(str(warning.message) for warning in caught)]
    messages += [("gymnasium-checker-fails", problem)] if problem else []
    found = [fault(name, *said) for name, text in messages if (said := translate(text)) is not None]
    yield from found or [ok("gymnasium's checker finds nothing")]


def translate(message: str) -> tuple[str, str] | None:
    """Return text and remedy for a message of the checker; None if it does not matter."""
    plain = " ".join(_COLORS.sub("", message).removeprefix("WARN: ").split()).removeprefix("WARN: ")
    for pattern, text, remedy in _SAYINGS:
        if re.search(pattern, plain):
            return (f"gymnasium's checker: {text}", remedy) if text else None
    return f"gymnasium's checker: {plain[:300]}", ""


#: Number of parts of the time, and of the first ones, which fill caches.
_PARTS, _WARM = 8, 3
#: Growth in all other parts below which there is no leak, bytes.
_LEAST_BYTES = 4 << 20
#: Growth in a million env steps below which a leak does not matter, bytes.
_PER_MILLION_STEPS = 512 << 20


def process_bytes() -> int:
    """Return the resident memory of this process, bytes."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def leaking(
    env: Env,
    time_s: float,
    *,
    measure: Callable[[], int] = process_bytes,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Finding]:
    """Play for a time, and check whether memory grows in each part of it; `measure` returns bytes."""
    steps, episodes, sizes = [0], [0], [measure()]
    for part in range(_PARTS):
        counter = _Counter()
        problems = list(play(env, [counter], Budget(time_s / _PARTS, 1 << 30), seed=part, clock=clock))
        if problems:  # an earlier check has reported them
            return
        steps.append(steps[-1] + counter.steps)
        episodes.append(episodes[-1] + counter.episodes)
        sizes.append(measure())
    growth = sizes[-1] - sizes[_WARM]
    played, ended = steps[-1] - steps[_WARM], episodes[-1] - episodes[_WARM]
    per_million = growth / max(played, 1) * 1e6
    is_steady = all(after > before for before, after in zip(sizes[_WARM:], sizes[_WARM + 1 :], strict=False))
    if is_steady and growth > _LEAST_BYTES and per_million > _PER_MILLION_STEPS:
        each = f", {growth / ended / 1024:,.0f} KiB with each episode" if ended else ""
        yield fault(
            "env-leaks",
            f"memory grows by {growth / 2**20:.0f} MiB in {played:,} steps{each}, "
            f"{per_million / 2**30:.1f} GiB in a million",
        )
    else:
        yield ok(f"no leak in {steps[-1]:,} steps")


class _Counter:
    def __init__(self) -> None:
        self.steps = self.episodes = 0

    def see(self, shown: Shown) -> None:
        self.steps += not shown.is_reset
        self.episodes += shown.is_end

    def findings(self) -> Iterator[Finding]:
        return iter(())


_SEED = 7
_STEPS = 50


def repeating(env: Env, *, steps: int = _STEPS) -> Iterator[Finding]:
    """Play the same steps twice, with the same seed and the same actions."""
    if env.spec is not None and env.spec.nondeterministic:
        yield ok("its spec states that seeds do not repeat it")
        return
    first, second = _record(env, steps), _record(env, steps)
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if difference := _difference(one, other):
            where = f"step {number}" if number else "reset"
            yield fault(
                "env-not-seedable", f"reset(seed={_SEED}) twice, the same actions: {difference} differs at {where}"
            )
            return
    yield ok(f"a seed repeats: {len(first) - 1} steps, twice the same")


def _record(env: Env, steps: int) -> list[tuple[Any, float, bool]]:
    env.action_space.seed(_SEED)
    obs, _ = env.reset(seed=_SEED)
    record = [(_copy(obs), 0.0, False)]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        record.append((_copy(obs), float(reward), bool(terminated or truncated)))
        if terminated or truncated:
            obs, _ = env.reset()
            record.append((_copy(obs), 0.0, False))
    return record


def _copy(obs: Any) -> list[Any]:
    return [np.array(leaf) for leaf in tree.leaves(obs)]


def _difference(one: tuple[Any, float, bool], other: tuple[Any, float, bool]) -> str:
    if not all(np.array_equal(a, b) for a, b in zip(one[0], other[0], strict=True)):
        return "the observation"
    if one[1] != other[1] and not (np.isnan(one[1]) and np.isnan(other[1])):
        return "the reward"
    return "the end of the episode" if one[2] != other[2] else ""


class Times(NamedTuple):
    """Time limits of the checks, s."""

    play_s: float
    leak_s: float  #: 0: leaks are not looked for
    patience_s: float = 20.0  #: extra time for calls that cannot be interrupted, such as another reset


LONG = Times(4.0, 4.0)
QUICK = Times(1.0, 0.0)


def examine_environment(make: Callable[[], Env], times: Times) -> Iterator[Check]:
    """Yield the checks; the first makes the environment, with the wrappers of training, and the last closes it."""
    made: list[Env] = []

    def begin() -> Iterator[Finding]:
        try:
            made.append(make())
        except SurrealError as error:
            yield fault("env-not-made", str(error))

    patience_s = times.patience_s
    yield Check("making the environment", begin, 30.0 + patience_s)
    if not made:
        return
    env = made[0]
    budget = Budget(times.play_s)
    yield Check("playing episodes", lambda: play(env, watchers_of(env), budget), times.play_s + patience_s)
    yield Check("repeating an episode", partial(repeating, env), patience_s)
    if times.leak_s:
        yield Check("looking for leaks", partial(leaking, env, times.leak_s), 2 * times.leak_s + patience_s)
    yield Check("gymnasium's checker", partial(checker, env), patience_s)
    with suppress(Exception):  # the environment is not used again
        env.close()


def watchers_of(env: Env) -> list[Watcher]:
    """Return all watchers for an environment."""
    observations, masks = ObservationWatcher(env.observation_space), MaskWatcher(env.action_space)
    return [observations, RewardWatcher(), masks, EndWatcher(), SpeedWatcher()]
