"""Whether a seed repeats an episode: what `--deterministic`, and whoever looks for a fault, rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from surreal.base import tree
from surreal.plugins.doctor.environment.faults import NOT_SEEDABLE
from surreal.plugins.doctor.environment.play import Env
from surreal.plugins.doctor.frame.finding import Finding, ok

_SEED = 7
_STEPS = 50


def repeating(env: Env, *, steps: int = _STEPS) -> Iterator[Finding]:
    """Play the same beginning twice, with the same seed and the same actions."""
    if env.spec is not None and env.spec.nondeterministic:
        yield ok("it says of itself that seeds do not repeat it")
        return
    first, second = _record(env, steps), _record(env, steps)
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if difference := _difference(one, other):
            where = f"step {number}" if number else "reset"
            yield NOT_SEEDABLE.found(f"reset(seed={_SEED}) twice, the same actions: {difference} differs at {where}")
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
