"""Doom by ViZDoom: small gray frames, one button at a time. Made by the id `surreal/ViZDoom-v0`; extra `vizdoom`.

    env:
      id: surreal/ViZDoom-v0
      kwargs: {scenario: basic, shape: [60, 80], no_life: false}

The ids of ViZDoom's own package (`VizdoomBasic-v1`) show the whole coloured screen in a `Dict`, and a black one where
an episode ends; here it is the last frame that was drawn.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import vizdoom
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.envs.atari.area_resize import AreaResize
from surreal.envs.atari.preprocessing import screen_shape
from surreal.envs.games.doom_process import DoomGuard, without_folder
from surreal.envs.games.scenarios import find_scenario
from surreal.envs.window import Window

#: Height and width of the screen.
_SCREEN = (120, 160)
#: Shares of red, green and blue in ViZDoom's own gray screens.
_GRAY = np.array([0.21, 0.72, 0.07], np.float32)


class VizDoom(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A game of Doom, by a program of its own beside this process.

    Observations are [height, width] uint8. Actions are `Discrete`: 0 presses nothing, then come the scenario's buttons
    in its order, then pairs of them if `max_buttons` is 2, and so on. Buttons that take an amount, as a mouse does, are
    left out. An episode that reaches the scenario's own time limit is truncated.

    Args:
        scenario: one of ViZDoom's by its name (`basic`, or `DoomMyWayHome` as it was once called), or the path of a
            `.cfg` file.
        shape: height and width of a frame, at most 120 and 160, or one number for both.
        frame_skip: tics of one step, >= 1, of which there are 35 in a second; more is faster and coarser.
        no_life: count negative rewards, such as that of each tic or of a missed shot, as 0.
        max_pool: show the larger of the last two frames of a step, pixel by pixel; with `frame_skip` > 1 only.
        max_buttons: most buttons pressed at once, >= 1; raising it by one may multiply the number of actions.
        render_mode: "human" shows the screen in a window, "rgb_array" gives it from `render`.

    Raises:
        EnvError: there is no such scenario.
        ValueError: an argument is out of range.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 35}  # noqa: RUF012 - gymnasium's own form

    def __init__(
        self,
        scenario: str = "my_way_home",
        shape: int | Sequence[int] = 42,
        frame_skip: int = 4,
        no_life: bool = True,
        max_pool: bool = True,
        max_buttons: int = 1,
        render_mode: str | None = None,
    ) -> None:
        if frame_skip < 1 or max_buttons < 1:
            raise ValueError(f"frame_skip is {frame_skip}, max_buttons is {max_buttons}; both must be >= 1")
        height, width = screen_shape(shape)
        self._resize = AreaResize(_SCREEN, (height, width))
        # Frames are drawn where they are looked at: after the last tic, and after the one before it.
        self._stretches = (frame_skip - 1, 1) if max_pool and frame_skip > 1 else (frame_skip,)
        self._no_life = no_life
        self.render_mode = render_mode
        self._window = Window(f"ViZDoom: {scenario}", 35 / frame_skip)
        self._game = _game(find_scenario(scenario, Path(vizdoom.scenarios_path)), is_colored=render_mode is not None)
        self._guard: DoomGuard | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._presses = _presses(self._game.get_available_buttons_size(), max_buttons)
        self._screen: NDArray[np.uint8] = np.zeros(_SCREEN, np.uint8)
        self.action_space = spaces.Discrete(len(self._presses))
        self.observation_space = spaces.Box(0, 255, (height, width), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode; the first starts the program of the game."""
        super().reset(seed=seed)
        self._game.set_seed(int(self.np_random.integers(1 << 32)))
        if self._game.is_running():
            self._game.new_episode()
        else:
            self._start()
        self._screen = self._look()
        self._show()
        return self._shrink(self._screen), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Press buttons for some tics."""
        game, reward, frames = self._game, 0.0, []
        game.set_action(self._presses[int(action)])
        for tics in self._stretches:
            game.advance_action(tics)
            reward += game.get_last_reward()
            if game.is_episode_finished():  # and nothing is drawn any more
                break
            frames.append(self._look())
        self._screen = frames[-1] if frames else self._screen
        self._show()
        obs = self._shrink(np.maximum(*frames) if len(frames) == 2 else self._screen)
        is_over = game.is_episode_finished()
        truncated = is_over and game.is_episode_timeout_reached() and not game.is_player_dead()
        return obs, max(reward, 0.0) if self._no_life else reward, is_over and not truncated, truncated, {}

    def render(self) -> Any:
        """Give the screen as it was last drawn, [120, 160, 3] uint8; None without render_mode "rgb_array"."""
        return self._screen.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """End the game's program."""
        self._window.close()
        self._game.close()
        if self._guard is not None:
            self._guard.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        # Otherwise the game keeps its settings in the working folder.
        self._folder = tempfile.TemporaryDirectory(prefix="surreal-doom-")
        self._game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))
        with without_folder():
            self._game.init()
        self._guard = DoomGuard(self._game, self._folder.name)

    def _look(self) -> NDArray[np.uint8]:
        screen: NDArray[np.uint8] = self._game.get_state().screen_buffer.copy()
        return screen

    def _show(self) -> None:
        if self.render_mode == "human":
            self._window.show(self._screen)

    def _shrink(self, screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return self._resize(screen if screen.ndim == 2 else np.rint(screen @ _GRAY).astype(np.uint8))


def _game(scenario: Path, *, is_colored: bool) -> Any:
    """Make a game that is not started yet."""
    game = vizdoom.DoomGame()
    game.load_config(str(scenario))
    game.set_available_buttons([button for button in game.get_available_buttons() if vizdoom.is_binary_button(button)])
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24 if is_colored else vizdoom.ScreenFormat.GRAY8)
    return game


def _presses(num_buttons: int, max_buttons: int) -> list[list[float]]:
    """List which buttons each action presses, as ones."""
    pressed = [
        buttons for count in range(max_buttons + 1) for buttons in itertools.combinations(range(num_buttons), count)
    ]
    return [[float(button in buttons) for button in range(num_buttons)] for buttons in pressed]
