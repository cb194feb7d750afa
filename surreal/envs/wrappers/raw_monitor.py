"""Watches raw episodes of a gymnasium environment, below the wrappers of training, for the pool above them."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium


class RawEpisodeMonitor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds up the rewards of a gymnasium environment for the pool above it.

    It stands below the wrappers of training, which may clip rewards, cut episodes short, or pass a lost life off as an
    end. So an episode counts when this environment ends, or when it is really reset before its end.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._return = 0.0
        self._length = 0
        self._finished: tuple[float, int] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._finish()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Apply one action."""
        result = self.env.step(action)
        self._return += float(result[1])
        self._length += 1
        if result[2] or result[3]:
            self._finish()
        return result

    def take_episode(self) -> tuple[float, int] | None:
        """Return (return, length) of the episode that ended since the last call, if one did."""
        finished, self._finished = self._finished, None
        return finished

    def _finish(self) -> None:
        if self._length:
            self._finished = (self._return, self._length)
        self._return, self._length = 0.0, 0


def find_monitor(env: gymnasium.Env[Any, Any]) -> RawEpisodeMonitor | None:
    """Find the monitor in a chain of gymnasium wrappers."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, RawEpisodeMonitor):
            return layer
        layer = layer.env
    return None
