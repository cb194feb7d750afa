"""Watches episodes of the plain loop: raw return and length."""

from __future__ import annotations

import logging
from typing import Any

from surreal.envs.plain.base import Env, Wrapper
from surreal.types import Obs

logger = logging.getLogger(__name__)


class EpisodeMonitor(Wrapper):
    """Counts return and length of every episode, and puts them into `info["episode"]` of its last step.

    Args:
        env: the environment to watch.

    Attributes:
        episodes: (return, length) of each finished episode.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.episodes: list[tuple[float, int]] = []
        self._return = 0.0
        self._length = 0

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode."""
        self._return, self._length = 0.0, 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        """Apply one action."""
        obs, reward, done, info = super().step(action)
        if info.get("phantom", False):
            self._return, self._length = 0.0, 0
            return obs, reward, done, info
        self._return += reward
        self._length += 1
        if done:
            self.episodes.append((self._return, self._length))
            info["episode"] = {"return": self._return, "length": self._length}
            logger.debug("episode %d: return %g, length %d", len(self.episodes), self._return, self._length)
        return obs, reward, done, info
