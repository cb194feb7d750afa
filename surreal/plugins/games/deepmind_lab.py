"""DeepMind Lab with small frames and few actions. Id `surreal/DeepMindLab-v0`.

    env:
      id: surreal/DeepMindLab-v0
      kwargs: {level_script: nav_maze_static_01, action_size: medium}

Its package, `deepmind_lab`, is not in a package index: build it from github.com/google-deepmind/lab. This module
follows its documentation (docs/users/python_api.md and actions.md there), and was tested with a stand-in only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.envs.atari.preprocessing import screen_shape
from surreal.envs.window import Window

_LOOK_X, _LOOK_Y = "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", "LOOK_DOWN_UP_PIXELS_PER_FRAME"
_STRAFE, _MOVE = "STRAFE_LEFT_RIGHT", "MOVE_BACK_FORWARD"
#: Actions: the input of Lab that each sets, and its value. The first four are the small set, the first six the medium.
ACTIONS: Mapping[str, tuple[str, int]] = {
    "look_left": (_LOOK_X, -20),
    "look_right": (_LOOK_X, 20),
    "forward": (_MOVE, 1),
    "backward": (_MOVE, -1),
    "strafe_left": (_STRAFE, -1),
    "strafe_right": (_STRAFE, 1),
    "look_up": (_LOOK_Y, 10),
    "look_down": (_LOOK_Y, -10),
    "fire": ("FIRE", 1),
    "jump": ("JUMP", 1),
    "crouch": ("CROUCH", 1),
}
_SIZES = {"small": 4, "medium": 6, "full": len(ACTIONS)}
_SCREEN, _FRAMES_LEFT = "RGB_INTERLEAVED", "FRAMES_REMAINING_AT_60"
#: Weights of red, green and blue in gray (ITU-R BT.601).
_GRAY = np.array([0.299, 0.587, 0.114], np.float32)


class DeepMindLab(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A level of DeepMind Lab.

    Observations are [height, width] uint8, or [3, height, width] with `is_colored`. An episode that ends at its time
    limit is truncated, if Lab reports the remaining time.

    Args:
        level_script: path of the level below Lab's `game_scripts/levels`, or below `config.levelDirectory`.
        action_size: "small" (look left and right, forward, backward), "medium" (strafe left and right too) or "full"
            (look up and down, fire, jump and crouch too).
        shape: height and width of a frame, or one number for both.
        fps: frames per second of the game.
        no_op_max: most steps without an action at the start of an episode, drawn from 0 .. no_op_max; raising it varies
            the starts.
        frame_skip: frames of one step; raising it is faster and coarser.
        is_colored: observations in color.
        lab_path: folder with the module `deepmind_lab`; None if it is installed.
        renderer: "software", or "hardware" for a graphics card.
        config: further settings of Lab and of the level, such as `episodeLengthSeconds`.
        render_mode: "human" shows the screen in a window, "rgb_array" returns it from `render`.

    Raises:
        EnvError: `deepmind_lab` is not installed.
        ValueError: an argument is out of range.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012 - as in gymnasium

    @checked
    def __init__(
        self,
        level_script: str = "nav_maze_static_01",
        action_size: str = "small",
        shape: int | Sequence[int] = 84,
        fps: PositiveInt = 20,
        no_op_max: NonNegativeInt = 9,
        frame_skip: PositiveInt = 4,
        is_colored: bool = False,
        lab_path: str | None = None,
        renderer: str = "software",
        config: Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if action_size not in _SIZES:
            raise ValueError(f"action_size is {action_size!r}; use one of {', '.join(_SIZES)}")
        self._height, self._width = screen_shape(shape)
        self._fps, self._frame_skip, self._no_op_max, self._is_colored = fps, frame_skip, no_op_max, is_colored
        self.render_mode = render_mode
        self._window = Window(f"DeepMind Lab: {level_script}", fps / frame_skip)
        settings = {"width": self._width, "height": self._height, "fps": fps, **(config or {})}
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()
        }
        self._lab = _make_lab(lab_path, level_script, renderer, texts)
        inputs = [str(spec["name"]) for spec in self._lab.action_spec()]
        self._actions = [_input(inputs, name) for name in list(ACTIONS)[: _SIZES[action_size]]]
        self._no_op = np.zeros(len(inputs), np.intc)
        self._screen: NDArray[np.uint8] = np.zeros((self._height, self._width, 3), np.uint8)
        self._frames_left = np.inf
        shown = (3, self._height, self._width) if is_colored else (self._height, self._width)
        self.action_space = spaces.Discrete(len(self._actions))
        self.observation_space = spaces.Box(0, 255, shown, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._begin()
        for _ in range(int(self.np_random.integers(self._no_op_max + 1))):
            self._lab.step(self._no_op, num_steps=self._frame_skip)
            if not self._lab.is_running():
                self._begin()
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        reward = float(self._lab.step(self._actions[int(action)], num_steps=self._frame_skip))
        is_over = not self._lab.is_running()
        # Lab shows nothing after the end of an episode.
        truncated = is_over and self._frames_left <= self._frame_skip * 60 / self._fps
        return self._observe(), reward, is_over and not truncated, truncated, {}

    def render(self) -> Any:
        """Return the last screen, [height, width, 3] uint8; None without render_mode "rgb_array"."""
        return self._screen.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._window.close()
        self._lab.close()

    def _begin(self) -> None:
        self._lab.reset(seed=int(self.np_random.integers(1 << 31)))

    def _observe(self) -> NDArray[np.uint8]:
        if self._lab.is_running():
            seen = self._lab.observations()
            self._screen = np.array(seen[_SCREEN], np.uint8)
            if _FRAMES_LEFT in seen:
                self._frames_left = float(np.asarray(seen[_FRAMES_LEFT]).ravel()[0])
        if self.render_mode == "human":
            self._window.show(self._screen)
        if self._is_colored:
            return np.ascontiguousarray(self._screen.transpose(2, 0, 1))
        gray: NDArray[np.uint8] = np.rint(self._screen @ _GRAY).astype(np.uint8)
        return gray


def _make_lab(lab_path: str | None, level: str, renderer: str, config: dict[str, str]) -> Any:
    if lab_path is not None and lab_path not in sys.path:
        sys.path.append(lab_path)
    try:
        module = importlib.import_module("deepmind_lab")
    except ImportError as error:
        raise EnvError(
            f"DeepMind Lab is not installed ({error}); it is not in a package index: build it from the sources at "
            "github.com/google-deepmind/lab, and name its folder in lab_path, or install the wheel that the build makes"
        ) from error
    if lab_path is not None and hasattr(module, "set_runfiles_path"):
        module.set_runfiles_path(str(Path(lab_path).resolve()))
    # Only a loaded level lists its observations.
    probe = module.Lab(level, [], config=config, renderer=renderer)
    names = {str(spec["name"]) for spec in probe.observation_spec()}
    probe.close()
    wanted = [_SCREEN, *([_FRAMES_LEFT] if _FRAMES_LEFT in names else [])]
    return module.Lab(level, wanted, config=config, renderer=renderer)


def _input(inputs: Sequence[str], action: str) -> NDArray[np.intc]:
    """Return an action as values of Lab's inputs, in their order."""
    name, value = ACTIONS[action]
    values = np.zeros(len(inputs), np.intc)
    values[inputs.index(name)] = value
    return values
