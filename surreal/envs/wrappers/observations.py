"""Wrappers that change observations: clipped, scaled, fewer entries, images, and one-hot MiniGrid codes."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.ranges import Positive, checked
from surreal.envs.atari.preprocessing import AreaResize, screen_shape

logger = logging.getLogger(__name__)

AnyEnv = gymnasium.Env[Any, Any]

#: Weights of red, green and blue for equal brightness (ITU-R BT.601).
_GRAY = np.array([0.299, 0.587, 0.114], np.float32)
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete, spaces.Dict, spaces.Tuple)


class ObsClip(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Clips observations to -limit..limit, for environments whose `Box` of floats has no bounds, or wide ones.

    Args:
        env: with observations in a `Box` of floats.
        limit: largest magnitude; raising it keeps more of rare large values, and gives them more weight. NaN stays NaN.
    """

    @checked
    def __init__(self, env: AnyEnv, limit: Positive = 10.0) -> None:
        space = env.observation_space
        if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
            raise ValueError(f"its observations are {space}; only a Box of floats can be clipped")
        if limit == np.inf:
            raise ValueError(f"limit is {limit}; it must be finite")
        super().__init__(env)
        low, high = np.clip(space.low, -limit, limit), np.clip(space.high, -limit, limit)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        box: Any = self.observation_space
        return np.clip(observation, box.low, box.high)


class ObsScale(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Multiplies observations by `scale`.

    Args:
        env: with observations in a `Box` of floats.
        scale: factor other than 0, or one for each component; choose it so that observations are near 1.
    """

    def __init__(self, env: AnyEnv, scale: float | Sequence[float]) -> None:
        space, factor = env.observation_space, np.asarray(scale)
        if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
            raise ValueError(f"its observations are {space}; only a Box of floats can be scaled")
        if factor.dtype.kind not in "iuf" or not np.isfinite(factor).all() or not factor.all():
            raise ValueError(f"scale is {scale}; it must be finite numbers other than 0")
        self._scale = np.broadcast_to(factor, space.shape).astype(space.dtype)
        super().__init__(env)
        ends = space.low * self._scale, space.high * self._scale
        self.observation_space = spaces.Box(np.minimum(*ends), np.maximum(*ends), dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        return observation * self._scale


class ObsEntries(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps some entries of a `Dict` observation.

    Args:
        env: with `Dict` observations.
        keys: the names of the entries; a single name instead of a list gives that entry without a `Dict`.
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
        if isinstance(self._keys, str):
            return observation[self._keys]
        chosen = {key: observation[key] for key in self._keys}
        return spaces.Dict(chosen) if isinstance(observation, spaces.Dict) else chosen


def arrays_only(env: AnyEnv) -> AnyEnv:
    """Remove entries of a `Dict` observation that are not arrays, such as text, and log their names.

    `make_env` calls it after the wrappers, so that a wrapper can still read such entries.
    """
    space = env.observation_space
    if not isinstance(space, spaces.Dict):
        return env
    kept = [key for key, entry in space.spaces.items() if isinstance(entry, _ARRAYS)]
    if not kept or len(kept) == len(space.spaces):
        return env
    _note(env.spec.id if env.spec else str(env), ", ".join(key for key in space.spaces if key not in kept))
    return ObsEntries(env, kept)


@cache
def _note(env_id: str, keys: str) -> None:
    """Log once per process."""
    logger.info("%s: observations are without %s, not an array; a wrapper that encodes it would keep it", env_id, keys)


class GrayImage(gymnasium.ObservationWrapper[NDArray[np.uint8], Any, Any]):
    """Converts images to gray, and shrinks them by averaging areas.

    Args:
        env: with observations [height, width, 3] or [height, width, 1] uint8.
        shape: height and width, or one number for both, at most those of the images; None keeps them.
    """

    def __init__(self, env: AnyEnv, shape: int | Sequence[int] | None = None) -> None:
        space = env.observation_space
        old = tuple(space.shape or ())
        if space.dtype != np.uint8 or len(old) != 3 or old[2] not in (1, 3):
            raise ValueError(f"its observations are {space}; it takes [height, width, 3] uint8")
        new = old[:2] if shape is None else screen_shape(shape)
        super().__init__(env)
        self._resize = None if new == old[:2] else AreaResize(old[:2], (new[0], new[1]))
        self.observation_space = spaces.Box(0, 255, new, np.uint8)

    def observation(self, observation: Any) -> NDArray[np.uint8]:
        gray: NDArray[np.uint8] = observation[..., 0]
        if observation.shape[2] == 3:
            gray = np.rint(observation @ _GRAY).astype(np.uint8)
        return gray if self._resize is None else self._resize(gray)


class ChannelsFirst(gymnasium.ObservationWrapper[NDArray[Any], Any, Any]):
    """Converts images from [height, width, channels] to [channels, height, width].

    The built-in networks accept both; see `image_axes` of `surreal.model.ComposedModel`.

    Args:
        env: with observations [height, width, channels].
    """

    def __init__(self, env: AnyEnv) -> None:
        space = env.observation_space
        if not isinstance(space, spaces.Box) or space.dtype is None or len(space.shape) != 3:
            raise ValueError(f"its observations are {space}; it takes a Box [height, width, channels]")
        super().__init__(env)
        low, high = np.moveaxis(space.low, -1, 0), np.moveaxis(space.high, -1, 0)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(observation, -1, 0)


class MiniGridOneHot(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """One-hot encodes the codes of the cells in view, and the direction.

    An observation is [cells * (objects + colors + states) + 4] float32: for each cell in view a one for its kind of
    object, one for its color and one for its state, then one for the agent's direction. The mission text is omitted.

    Args:
        env: a MiniGrid environment, possibly with wrappers that keep its codes, such as `FullyObsWrapper`.
    """

    def __init__(self, env: AnyEnv) -> None:
        space = env.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {}
        image, direction = parts.get("image"), parts.get("direction")
        if not isinstance(image, spaces.Box) or not isinstance(direction, spaces.Discrete) or image.shape[2:] != (3,):
            raise ValueError(f"its observations are {space}; it needs those of MiniGrid, with image and direction")
        codes = importlib.import_module("minigrid.core.constants")
        sizes = (len(codes.OBJECT_TO_IDX), len(codes.COLOR_TO_IDX), len(codes.STATE_TO_IDX))
        super().__init__(env)
        self._image, self._direction = np.eye(sum(sizes), dtype=np.float32), np.eye(direction.n, dtype=np.float32)
        self._starts = np.cumsum((0, *sizes[:2]))
        width = image.shape[0] * image.shape[1] * sum(sizes) + int(direction.n)
        self.observation_space = spaces.Box(0.0, 1.0, (width,), np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        cells = self._image[observation["image"] + self._starts].sum(axis=2)
        return np.concatenate([cells.ravel(), self._direction[observation["direction"]]])
