"""The usual preprocessing of Atari games around ale-py's single environments (Mnih et al. 2015; Machado et al. 2018).

`AtariPreprocessing` belongs to the game: evaluation has it too. `LifeLoss` is for training only, as are the wrappers of
rewards. Stacking is not done here: see `env.frame_stack`, and `surreal.envs.FrameStack` in the plain loop.

gymnasium's wrapper of the same name needs OpenCV, resets the whole game when a life is lost, and shows an old frame
where a game ends in the middle of a skip.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.envs.atari.area_resize import AreaResize

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
    # Otherwise every process greets on its standard error.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return True


class AtariPreprocessing(gymnasium.Wrapper[NDArray[np.uint8], Any, Any, Any]):
    """Random no-ops at the start, frames skipped with the action repeated, and small gray frames.

    Observations are [height, width] uint8: the larger of the last two frames, pixel by pixel (sprites flicker), resized
    by area.

    Args:
        env: a game of ale-py, made with `frameskip=1`; its own observations are not looked at.
        noop_max: most no-ops at the start of an episode, >= 0; drawn from 1 .. noop_max. More varies the starts.
        frame_skip: frames of one step, >= 1; more is faster and coarser.
        screen_size: height and width, or one number for both.
        fire_on_reset: press FIRE, where the game has it, when a game begins, and again after a lost life: some games
            wait for it. It counts as one of the no-ops at the start. After a lost life it takes further frames of the
            step that lost it, and no chosen action is replaced.

    Attributes:
        restart_action: what `LifeLoss` does between two lives: press FIRE, or nothing.
        fires_in_step: whether a step that loses a life presses FIRE; `LifeLoss` turns it off, and does it instead.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int | Sequence[int] = 84,
        fire_on_reset: bool = False,
    ) -> None:
        height, width = screen_shape(screen_size)
        if noop_max < 0 or frame_skip < 1:
            raise ValueError(f"noop_max is {noop_max}, frame_skip is {frame_skip}; they must be >= 0 and >= 1")
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
        self.restart_action = _NOOP if self._fire is None else self._fire
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
        """Start an episode."""
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
        """Repeat one action."""
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
    """Ends an episode when a life is lost, for training only: dying is final, as far as the values go.

    The game continues below: the next `reset` takes one no-op, or presses FIRE as `AtariPreprocessing` wants it, and
    starts a new game only where the last one is over.

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
        self._goes_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start the next life, or the next game."""
        if self._goes_on and seed is None and not options:
            obs, _, terminated, truncated, info = self.env.step(self._restart)
            if terminated or truncated:
                obs, info = self.env.reset()
        else:
            obs, info = self.env.reset(seed=seed, options=options)
        self._goes_on = False
        self._lives = int(info["lives"])
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Apply one action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = int(info["lives"])
        # Some games show no lives for a few frames while they are not over.
        self._goes_on = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return obs, reward, terminated or self._goes_on, truncated, info


def fire_action(meanings: Sequence[str]) -> int | None:
    """Find the action that presses FIRE and nothing else; None if the game has none."""
    return list(meanings).index("FIRE") if "FIRE" in meanings else None


def screen_shape(screen_size: int | Sequence[int]) -> tuple[int, int]:
    """Read the size of a screen as height and width.

    Raises:
        ValueError: it is neither one number >= 1 nor two.
    """
    sizes = [screen_size, screen_size] if isinstance(screen_size, int) else list(screen_size)
    if len(sizes) != 2 or any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"screen_size is {screen_size}; use one number >= 1, or height and width")
    return sizes[0], sizes[1]
