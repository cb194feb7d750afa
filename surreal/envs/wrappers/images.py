"""Images as networks want them: small and gray, or with their channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.envs.atari.area_resize import AreaResize
from surreal.envs.atari.preprocessing import screen_shape

#: Shares of red, green and blue in what looks equally bright (ITU-R BT.601).
_GRAY = np.array([0.299, 0.587, 0.114], np.float32)


class GrayImage(gymnasium.ObservationWrapper[NDArray[np.uint8], Any, Any]):
    """Makes images gray, and smaller by averaging areas.

    Args:
        env: with observations [height, width, 3] or [height, width, 1] uint8.
        shape: height and width, or one number for both; not larger than what comes. None: as it comes.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], shape: int | Sequence[int] | None = None) -> None:
        space = env.observation_space
        old = tuple(space.shape or ())
        if space.dtype != np.uint8 or len(old) != 3 or old[2] not in (1, 3):
            raise ValueError(f"its observations are {space}; it takes [height, width, 3] uint8")
        new = old[:2] if shape is None else screen_shape(shape)
        super().__init__(env)
        self._resize = None if new == old[:2] else AreaResize(old[:2], (new[0], new[1]))
        self.observation_space = gymnasium.spaces.Box(0, 255, new, np.uint8)

    def observation(self, observation: Any) -> NDArray[np.uint8]:
        """Make it gray and small."""
        gray: NDArray[np.uint8] = observation[..., 0]
        if observation.shape[2] == 3:
            gray = np.rint(observation @ _GRAY).astype(np.uint8)
        return gray if self._resize is None else self._resize(gray)


class ChannelsFirst(gymnasium.ObservationWrapper[NDArray[Any], Any, Any]):
    """Converts images from [height, width, channels] to [channels, height, width].

    The built-in networks take both, see `image_axes` of `surreal.model.ComposedModel`.

    Args:
        env: with observations [height, width, channels].
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype is None or len(space.shape) != 3:
            raise ValueError(f"its observations are {space}; it takes a Box [height, width, channels]")
        super().__init__(env)
        low, high = np.moveaxis(space.low, -1, 0), np.moveaxis(space.high, -1, 0)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Move the channels."""
        return np.moveaxis(observation, -1, 0)
