"""Chooses among the entries of `Dict` observations; text and the like, which are no arrays, are left out by themselves.

`make_env` leaves them out after the wrappers, so that one of them may still read them, as MiniGrid's `FlatObsWrapper`
does with a mission.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium
from gymnasium import spaces

logger = logging.getLogger(__name__)

AnyEnv = gymnasium.Env[Any, Any]


class ObsEntries(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps some entries of a `Dict` observation.

    Args:
        env: what it is put around.
        keys: of the entries, each a key of the `Dict`; one name instead of a list gives that entry alone, without a
            `Dict` around it.
    """

    def __init__(self, env: AnyEnv, keys: str | Sequence[str]) -> None:
        space = env.observation_space
        if not isinstance(space, spaces.Dict):
            raise ValueError(f"its observations are {space}; only a Dict has entries")
        missing = [key for key in ([keys] if isinstance(keys, str) else keys) if key not in space.spaces]
        if missing or not keys:
            raise ValueError(f"keys is {keys}; there are {', '.join(space.spaces)}")
        super().__init__(env)
        self._keys = keys if isinstance(keys, str) else tuple(keys)
        self.observation_space = self.observation(space)

    def observation(self, observation: Any) -> Any:
        """Choose."""
        if isinstance(self._keys, str):
            return observation[self._keys]
        chosen = {key: observation[key] for key in self._keys}
        return spaces.Dict(chosen) if isinstance(observation, spaces.Dict) else chosen


def arrays_only(env: AnyEnv) -> AnyEnv:
    """Leave out the entries of a `Dict` observation that are no arrays, with a note in the log."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict):
        return env
    kept = [key for key, entry in space.spaces.items() if isinstance(entry, _ARRAYS)]
    if not kept or len(kept) == len(space.spaces):
        return env
    _note(env.spec.id if env.spec else str(env), ", ".join(key for key in space.spaces if key not in kept))
    return ObsEntries(env, kept)


_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete, spaces.Dict, spaces.Tuple)


@cache
def _note(env_id: str, keys: str) -> None:
    """Say it once in a process, however many environments it has."""
    logger.info("%s: observations are without %s, no array; a wrapper that encodes it would keep it", env_id, keys)
