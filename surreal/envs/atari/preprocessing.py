"""The usual preprocessing of Atari games for single environments (Mnih et al. 2015; Machado et al. 2018).

`AtariPreprocessing` applies in training and evaluation, `LifeLoss` in training only. `env.frame_stack` stacks frames.
gymnasium's wrapper of the same name needs OpenCV, resets the whole game when a life is lost, and shows an old frame if
a game ends in the middle of a skip.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from math import gcd
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.ranges import NonNegativeInt, PositiveInt, checked

_NOOP = 0


def is_atari(env_id: str) -> bool:
    """Whether an id names a game of ale-py."""
    return env_id.startswith("ALE/")


def load_ale() -> bool:
    """Register ale-py's games, if it is installed; returns whether it is."""
    if importlib.util.find_spec("ale_py") is None:
        return False
    ale_py = importlib.import_module("ale_py")
    gymnasium.register_envs(ale_py)
    # Otherwise every process prints a greeting to standard error.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return True


class AreaResize:
    """Shrinks gray images by averaging areas, like OpenCV's INTER_AREA, which the Atari literature uses.

    The pattern of weights along an axis repeats after `old / gcd(old, new)` pixels, so each axis is a product with one
    small matrix instead of a large sparse one.

    Args:
        old_shape: height and width of the images.
        new_shape: height and width of the results, not larger.
    """

    def __init__(self, old_shape: tuple[int, int], new_shape: tuple[int, int]) -> None:
        for old, new in zip(old_shape, new_shape, strict=True):
            if not 1 <= new <= old:
                raise ValueError(f"images of {old_shape} cannot be shrunk to {new_shape}")
        (height, width), (self._height, self._width) = old_shape, new_shape
        self._rows = gcd(height, self._height)
        self._row_weights = _weights(height // self._rows, self._height // self._rows)
        self._columns = gcd(width, self._width)
        self._column_weights = np.ascontiguousarray(_weights(width // self._columns, self._width // self._columns).T)
        self._old_shape = old_shape

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize [height, width] uint8; the result is a new array."""
        height, width = self._old_shape
        rows = image.reshape(self._rows, height // self._rows, width).astype(np.float32)
        shrunk: NDArray[Any] = np.matmul(self._row_weights, rows).reshape(-1, width // self._columns)
        shrunk = shrunk @ self._column_weights
        resized: NDArray[np.uint8] = np.rint(shrunk, out=shrunk).astype(np.uint8)
        return resized.reshape(self._height, self._width)


class AtariPreprocessing(gymnasium.Wrapper[NDArray[np.uint8], Any, Any, Any]):
    """Random no-ops at the start, frame skipping with repeated actions, and small gray frames.

    Observations are [height, width] uint8: the larger of the last two frames, pixel by pixel (sprites flicker), resized
    by area.

    Args:
        env: a game of ale-py, made with `frameskip=1`; its observations are not used.
        noop_max: most no-ops at the start of an episode, drawn from 1 .. noop_max; raising it varies the starts.
        frame_skip: frames of one step; raising it is faster and coarser.
        screen_size: height and width, or one number for both.
        fire_on_reset: press FIRE, if the game has it, when a game begins and after a lost life, because some games
            wait for it. At the start it counts as one of the no-ops. After a lost life it takes further frames of the
            same step, and replaces no chosen action.
    """

    @checked
    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        noop_max: NonNegativeInt = 30,
        frame_skip: PositiveInt = 4,
        screen_size: int | Sequence[int] = 84,
        fire_on_reset: bool = False,
    ) -> None:
        height, width = screen_shape(screen_size)
        game: Any = env.unwrapped
        if not hasattr(game, "ale"):
            raise ValueError("it is not a game of ale-py")
        if not isinstance(env.action_space, spaces.Discrete):
            raise ValueError("the game must have discrete actions; leave `continuous` out")
        if getattr(game, "_frameskip", 1) != 1:
            raise ValueError("the game skips frames by itself; leave `frameskip` out of its arguments")
        super().__init__(env)
        self._ale = game.ale
        self._noop_max = noop_max
        self._frame_skip = frame_skip
        self._fire = fire_action(game.get_action_meanings()) if fire_on_reset else None
        #: action of `LifeLoss` between two lives: FIRE or no-op
        self.restart_action = _NOOP if self._fire is None else self._fire
        #: whether a step that loses a life presses FIRE; `LifeLoss` turns it off and does so itself
        self.fires_in_step = self._fire is not None
        self._lives = 0
        shape = tuple(self._ale.getScreenDims())
        self._resize = AreaResize((shape[0], shape[1]), (height, width))
        self._frame = np.zeros(shape, np.uint8)
        self._frame_before = np.zeros(shape, np.uint8)
        self.observation_space = spaces.Box(0, 255, (height, width), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        noops = int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0
        if self._fire is not None:
            _, _, _, _, info = self.env.step(self._fire)
            noops -= 1
        for _ in range(noops):
            _, _, terminated, truncated, info = self.env.step(_NOOP)
            if terminated or truncated:
                _, info = self.env.reset(options=options)
        self._ale.getScreenGrayscale(self._frame)
        self._lives = self._ale.lives()
        return self._resize(self._frame), info

    def step(self, action: Any) -> tuple[NDArray[np.uint8], SupportsFloat, bool, bool, dict[str, Any]]:
        obs, total, terminated, truncated, info = self._repeat(action)
        if self.fires_in_step and 0 < self._ale.lives() < self._lives and not (terminated or truncated):
            obs, reward, terminated, truncated, info = self._repeat(self._fire)
            total += reward
        self._lives = self._ale.lives()
        return obs, total, terminated, truncated, info

    def _repeat(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        total, has_before = 0.0, False
        for left in range(self._frame_skip - 1, -1, -1):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                has_before = has_before and left == 0
                break
            if left == 1:
                self._ale.getScreenGrayscale(self._frame_before)
                has_before = True
        self._ale.getScreenGrayscale(self._frame)
        if has_before:
            np.maximum(self._frame, self._frame_before, out=self._frame)
        return self._resize(self._frame), total, terminated, truncated, info


class LifeLoss(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends an episode when a life is lost, for training only, so that values treat a lost life as terminal.

    The game continues below: the next `reset` takes one no-op, or presses FIRE (see `AtariPreprocessing`), and starts a
    new game only if the last one is over.

    Args:
        env: a game whose `info` has "lives".
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._restart = _NOOP
        if env.has_wrapper_attr("restart_action"):
            self._restart = env.get_wrapper_attr("restart_action")
            env.set_wrapper_attr("fires_in_step", False)
        self._lives = 0
        self._continues = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._continues and seed is None and not options:
            obs, _, terminated, truncated, info = self.env.step(self._restart)
            if terminated or truncated:
                obs, info = self.env.reset()
        else:
            obs, info = self.env.reset(seed=seed, options=options)
        self._continues = False
        self._lives = int(info["lives"])
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = int(info["lives"])
        # Some games show no lives for a few frames although they are not over.
        self._continues = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return obs, reward, terminated or self._continues, truncated, info


def fire_action(meanings: Sequence[str]) -> int | None:
    """Find the action that presses only FIRE; None if the game has none."""
    return list(meanings).index("FIRE") if "FIRE" in meanings else None


def screen_shape(screen_size: int | Sequence[int]) -> tuple[int, int]:
    """Read the size of a screen as height and width."""
    sizes = [screen_size, screen_size] if isinstance(screen_size, int) else list(screen_size)
    if len(sizes) != 2 or any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"screen_size is {screen_size}; use one number >= 1, or height and width")
    return sizes[0], sizes[1]


def _weights(old: int, new: int) -> NDArray[np.float32]:
    """Return the shares [new, old] of the old pixels in each new one."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.arange(old)
    begin = np.maximum(edges[:-1, None], pixels)
    end = np.minimum(edges[1:, None], pixels + 1)
    weights: NDArray[np.float32] = (np.maximum(end - begin, 0.0) * (new / old)).astype(np.float32)
    return weights
