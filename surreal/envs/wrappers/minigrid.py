"""What an agent of MiniGrid sees, in the form that dense networks learn from soonest."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class MiniGridOneHot(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """Turns the codes of the cells in view, and the direction, into zeros and ones: a code is no amount.

    An observation is [cells * (objects + colours + states) + 4] float32: for each cell in view a one for its kind of
    object, one for its colour, one for its state, and then one for the direction the agent looks in. The mission, which
    is text, is left out.

    Args:
        env: of MiniGrid, or with that package's wrappers that keep its codes, such as `FullyObsWrapper`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        space = env.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {}
        image, direction = parts.get("image"), parts.get("direction")
        if not isinstance(image, spaces.Box) or not isinstance(direction, spaces.Discrete) or image.shape[2:] != (3,):
            raise ValueError(f"its observations are {space}; it takes MiniGrid's own, with image and direction")
        codes = importlib.import_module("minigrid.core.constants")
        sizes = (len(codes.OBJECT_TO_IDX), len(codes.COLOR_TO_IDX), len(codes.STATE_TO_IDX))
        super().__init__(env)
        self._image, self._direction = np.eye(sum(sizes), dtype=np.float32), np.eye(direction.n, dtype=np.float32)
        self._starts = np.cumsum((0, *sizes[:2]))
        width = image.shape[0] * image.shape[1] * sum(sizes) + int(direction.n)
        self.observation_space = spaces.Box(0.0, 1.0, (width,), np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """Write ones where codes are."""
        cells = self._image[observation["image"] + self._starts].sum(axis=2)
        return np.concatenate([cells.ravel(), self._direction[observation["direction"]]])
