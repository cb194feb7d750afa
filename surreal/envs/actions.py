"""Translates between the actions that agents emit and those an environment takes.

Agents see one array an action: `Discrete` counted from 0, `MultiDiscrete`, `MultiBinary` or `Box`. Environments may
start to count elsewhere, or nest spaces in `Dict` and `Tuple`. Used by the pools and by the plain-loop `GymEnv`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import spaces_of
from surreal.base.tree import map_leaves, take
from surreal.base.values import is_sound


class ActionAdapter:
    """Flattens an action space for the agent, and unflattens its actions for the environment.

    Samples of a policy may leave the bounds of a `Box`: the environment gets them cut to its own, while the experience
    keeps what was sampled, whose probability is known.

    A `Box` of float64, which no network gives, becomes one of float32.

    A nested space becomes a `MultiDiscrete` if all its leaves are discrete, else gymnasium's flat `Box`, in which a
    discrete leaf of n values is n scores, the largest of which is meant.

    Raises:
        EnvError: the space contains something other than arrays (Text, Graph, Sequence).
    """

    def __init__(self, env_space: gymnasium.Space[Any]) -> None:
        self.env_space = env_space
        self._is_nested = isinstance(env_space, spaces.Dict | spaces.Tuple)
        self._box = env_space if isinstance(env_space, spaces.Box) else None
        self._tree = spaces_of(env_space)
        self._leaves = _leaves(env_space)
        self._is_scored = not all(isinstance(leaf, _DISCRETE) for leaf in self._leaves)
        self.space = self._flat_space()
        self.dtype = np.dtype(np.int64) if isinstance(self.space, spaces.Discrete) else np.dtype(self.space.dtype)
        self.shape: tuple[int, ...] = tuple(self.space.shape or ())
        starts = [np.asarray(leaf.start) for leaf in self._leaves if hasattr(leaf, "start")]
        self._is_shifted = any(bool(np.any(start)) for start in starts)
        self.is_plain = not (self._is_nested or self._is_shifted or self._box is not None)

    def default(self) -> NDArray[Any]:
        """Return a legal action, for a step whose action is ignored."""
        if isinstance(self.space, spaces.Box):
            return np.clip(np.zeros(self.shape, self.dtype), self.space.low, self.space.high)
        return np.zeros(self.shape, self.dtype)

    def rows(self, actions: NDArray[Any]) -> Sequence[Any]:
        """Split actions [N, *shape] into one action for each environment."""
        if self._is_nested:
            nested = self.batch(actions)
            return [take(nested, index) for index in range(len(actions))]
        return list(self.batch(actions))

    def batch(self, actions: NDArray[Any]) -> Any:
        """Translate actions [N, *shape] for a vector environment: nested arrays of N rows each."""
        if self._is_nested:
            columns: list[Any] = []
            start = 0
            for leaf in self._leaves:
                width = spaces.flatdim(leaf) if self._is_scored else int(np.prod(leaf.shape or (1,)))
                columns.append(self._decode(leaf, actions[:, start : start + width]))
                start += width
            decoded = iter(columns)
            return map_leaves(lambda _: next(decoded), self._tree)
        if self._is_shifted:
            return actions + self.env_space.start  # type: ignore[attr-defined]
        return actions if self._box is None else _clipped(self._box, actions)

    def flat(self, action: Any) -> NDArray[Any]:
        """Translate an action into the agent's form, [*shape]; raises `ValueError` if it is not in the space."""
        parts: list[NDArray[Any]] = []
        try:
            for leaf, value in _values(self.env_space, action):
                array = np.asarray(value)
                typed = array.astype(leaf.dtype) if is_sound(array) else array
                if not leaf.contains(typed) or (typed.dtype.kind in "iu" and (typed != array).any()):
                    raise ValueError(f"{value!r:.80} is not in {leaf}")
                if self._is_scored:
                    parts.append(np.asarray(spaces.flatten(leaf, typed)))
                else:
                    parts.append(np.ravel(typed - leaf.start if hasattr(leaf, "start") else typed))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{action!r:.80} is not an action of {self.env_space}: {error}") from error
        return np.concatenate(parts).astype(self.dtype).reshape(self.shape)

    def _flat_space(self) -> gymnasium.Space[Any]:
        space = self.env_space
        if isinstance(space, spaces.Discrete):
            return spaces.Discrete(int(space.n))
        if isinstance(space, spaces.MultiDiscrete):
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)
        if isinstance(space, spaces.Box) and space.dtype == np.float64:
            return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32))
        if not self._is_nested:
            return space
        if self._is_scored:
            flat = spaces.flatten_space(space)
            if not isinstance(flat, spaces.Box):
                raise EnvError(f"action space {space} cannot be flattened into one array")
            return flat
        return spaces.MultiDiscrete(np.concatenate([_choices(leaf) for leaf in self._leaves]))

    def _decode(self, leaf: Any, values: NDArray[Any]) -> NDArray[Any]:
        """Turn the columns of one leaf [N, width] into its values [N, *leaf.shape]."""
        count = len(values)
        if isinstance(leaf, spaces.Discrete):
            picked = values.argmax(axis=1) if self._is_scored else values[:, 0]
            return np.asarray(picked + leaf.start, leaf.dtype)
        if isinstance(leaf, spaces.MultiDiscrete):
            if self._is_scored:
                edges = np.cumsum(leaf.nvec.ravel())[:-1]
                values = np.stack([part.argmax(axis=1) for part in np.split(values, edges, axis=1)], axis=1)
            return np.asarray(values.reshape(count, *leaf.shape) + leaf.start, leaf.dtype)
        if isinstance(leaf, spaces.MultiBinary):
            return np.asarray(values.reshape(count, *leaf.shape) > 0.5, leaf.dtype)
        return _clipped(leaf, np.asarray(values.reshape(count, *leaf.shape), leaf.dtype))


_DISCRETE = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def mask_width(space: gymnasium.Space[Any]) -> int:
    """Return how many entries an action mask of this (flat) space has, 0 where masks make no sense."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(space.nvec.sum()) if isinstance(space, spaces.MultiDiscrete) else 0


def flat_mask(mask: Any, width: int) -> NDArray[np.bool_]:
    """Bring an environment's mask, an array or a tuple of them, into one row of `width` booleans."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    row = np.concatenate([np.ravel(np.asarray(part)) for part in parts]).astype(np.bool_)
    if len(row) != width:
        raise EnvError(f'info["action_mask"] has {len(row)} entries, but the action space has {width} choices')
    return row


def _leaves(space: gymnasium.Space[Any]) -> list[Any]:
    """List the spaces in the order of `Dict`'s own keys, which is that of gymnasium's flat form."""
    found: list[Any] = []
    map_leaves(found.append, spaces_of(space))
    if not all(isinstance(leaf, (*_DISCRETE, spaces.Box)) for leaf in found):
        raise EnvError(f"action space {space} is not supported; use Discrete, Multi*, Box, or Dict and Tuple of them")
    return found


def _values(space: gymnasium.Space[Any], action: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each leaf of a space, in the order of `_leaves`, with its part of an action."""
    if isinstance(space, spaces.Dict):
        if action.keys() != space.keys():
            raise ValueError(f"it has the keys {list(action)}, not {list(space.keys())}")
        for key, child in space.items():
            yield from _values(child, action[key])
    elif isinstance(space, spaces.Tuple):
        for child, part in zip(space, action, strict=True):
            yield from _values(child, part)
    else:
        yield space, action


def _clipped(space: spaces.Box, actions: NDArray[Any]) -> NDArray[Any]:
    clipped: NDArray[Any] = np.clip(np.asarray(actions, space.dtype), space.low, space.high)
    return clipped


def _choices(leaf: Any) -> NDArray[np.int64]:
    if isinstance(leaf, spaces.Discrete):
        return np.array([leaf.n], np.int64)
    if isinstance(leaf, spaces.MultiDiscrete):
        return np.asarray(leaf.nvec, np.int64).ravel()
    return np.full(int(np.prod(leaf.shape)), 2, np.int64)
