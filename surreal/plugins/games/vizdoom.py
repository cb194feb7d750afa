"""Doom through ViZDoom: small gray frames, one button at a time. Id `surreal/ViZDoom-v0`, extra `vizdoom`.

    env:
      id: surreal/ViZDoom-v0
      kwargs: {scenario: basic, shape: [60, 80], no_life: false}

The ids of ViZDoom's package (`VizdoomBasic-v1`) show the whole color screen in a `Dict`, and a black one at the end of
an episode. This class shows the last frame.
"""

from __future__ import annotations

import difflib
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import vizdoom
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.ranges import PositiveInt, checked
from surreal.envs.atari.preprocessing import AreaResize, screen_shape
from surreal.envs.window import Window

#: Height and width of the screen.
_SCREEN = (120, 160)
#: Weights of red, green and blue in ViZDoom's gray screens.
_GRAY = np.array([0.21, 0.72, 0.07], np.float32)
#: Shell of the guard: $1 is the process, $2 the suffix of its shared memory, $3 its folder. A word on stdin stops it.
_GUARD = 'read word || { kill -9 "$1"; rm -rf /dev/shm/ViZDoom*"$2" "$3"; }'
_FOLDER = Path("_vizdoom")


class VizDoom(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A game of Doom, which runs in another process.

    Observations are [height, width] uint8. Actions are `Discrete`: 0 presses nothing, then come the scenario's buttons
    in its order, then pairs of them if `max_buttons` is 2, and so on. Buttons with an amount, such as a mouse, are
    omitted. An episode that reaches the scenario's time limit is truncated.

    Args:
        scenario: name of one of ViZDoom's scenarios (`basic`, or the old form `DoomMyWayHome`), or the path of a `.cfg`
            file.
        shape: height and width of a frame, at most 120 and 160, or one number for both.
        frame_skip: tics of one step, at 35 tics per second; raising it is faster and coarser.
        no_life: count negative rewards, such as that of each tic or of a missed shot, as 0.
        max_pool: show the pixel-wise maximum of the last two frames of a step, if `frame_skip` > 1.
        max_buttons: most buttons pressed at once; raising it by one may multiply the number of actions.
        render_mode: "human" shows the screen in a window, "rgb_array" returns it from `render`.

    Raises:
        EnvError: the scenario does not exist.
        ValueError: an argument is out of range.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 35}  # noqa: RUF012 - as in gymnasium

    @checked
    def __init__(
        self,
        scenario: str = "my_way_home",
        shape: int | Sequence[int] = 42,
        frame_skip: PositiveInt = 4,
        no_life: bool = True,
        max_pool: bool = True,
        max_buttons: PositiveInt = 1,
        render_mode: str | None = None,
    ) -> None:
        height, width = screen_shape(shape)
        self._resize = AreaResize(_SCREEN, (height, width))
        # The game draws only the frames that are used: after the last tic, and after the one before it.
        self._advances = (frame_skip - 1, 1) if max_pool and frame_skip > 1 else (frame_skip,)
        self._no_life = no_life
        self.render_mode = render_mode
        self._window = Window(f"ViZDoom: {scenario}", 35 / frame_skip)
        self._game = _game(find_scenario(scenario, Path(vizdoom.scenarios_path)), has_color=render_mode is not None)
        self._guard: DoomGuard | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._presses = _presses(self._game.get_available_buttons_size(), max_buttons)
        self._screen: NDArray[np.uint8] = np.zeros(_SCREEN, np.uint8)
        self.action_space = spaces.Discrete(len(self._presses))
        self.observation_space = spaces.Box(0, 255, (height, width), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode; the first one starts the game's process."""
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
        game, reward, frames = self._game, 0.0, []
        game.set_action(self._presses[int(action)])
        for tics in self._advances:
            game.advance_action(tics)
            reward += game.get_last_reward()
            if game.is_episode_finished():  # the game draws nothing then
                break
            frames.append(self._look())
        self._screen = frames[-1] if frames else self._screen
        self._show()
        obs = self._shrink(np.maximum(*frames) if len(frames) == 2 else self._screen)
        is_over = game.is_episode_finished()
        truncated = is_over and game.is_episode_timeout_reached() and not game.is_player_dead()
        return obs, max(reward, 0.0) if self._no_life else reward, is_over and not truncated, truncated, {}

    def render(self) -> Any:
        """Return the last screen, [120, 160, 3] uint8; None without render_mode "rgb_array"."""
        return self._screen.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._window.close()
        self._game.close()
        if self._guard is not None:
            self._guard.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        # Otherwise the game writes its settings into the working folder.
        self._folder = tempfile.TemporaryDirectory(prefix="surreal-doom-")
        self._game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))
        with _without_folder():
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


class DoomGuard:
    """Ends a game's program, and removes its files, if this process is killed.

    ViZDoom's program does not notice the end of its parent. The guard is a shell whose standard input closes then.

    Args:
        game: an initialized `vizdoom.DoomGame`.
        folder: the folder of its settings.
    """

    def __init__(self, game: Any, folder: str) -> None:
        name = str(game.get_instance_id())
        self._shell: subprocess.Popen[bytes] | None = None
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if name in child.cmdline():
                    # In its own session, so that Ctrl-C does not end the guard before the game.
                    self._shell = subprocess.Popen(
                        ["sh", "-c", _GUARD, "sh", str(child.pid), name, folder],
                        stdin=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )

    def close(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            with suppress(OSError):
                shell.communicate(b"done\n")


def find_scenario(name: str, folder: Path) -> Path:
    """Find a scenario's file.

    Args:
        name: the name of a file in `folder` without its suffix, also in the form of gym's ids (`DoomMyWayHome`,
            `VizdoomBasic-v1`); or the path of a `.cfg` file.
        folder: the folder of ViZDoom's scenarios.

    Raises:
        EnvError: it does not exist.
    """
    if name.endswith(".cfg"):
        file = Path(name)
        if not file.is_file():
            raise EnvError(f"scenario is {name}, and there is no such file")
        return file
    plain = re.sub(r"^(Viz)?[Dd]oom|-v\d+$", "", name)
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).lower()
    known = {file.stem: file for file in folder.glob("*.cfg")}
    if snake in known:
        return known[snake]
    near = difflib.get_close_matches(snake, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(known))}, or give a .cfg file"
    raise EnvError(f"scenario is {name!r}, which does not exist; {hint}")


@contextmanager
def _without_folder() -> Iterator[None]:
    """Remove the empty folder that a game makes when it starts, unless it existed before."""
    is_ours = not _FOLDER.exists()
    yield
    if is_ours:
        with suppress(OSError):
            _FOLDER.rmdir()


def _game(scenario: Path, *, has_color: bool) -> Any:
    game = vizdoom.DoomGame()
    game.load_config(str(scenario))
    game.set_available_buttons([button for button in game.get_available_buttons() if vizdoom.is_binary_button(button)])
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24 if has_color else vizdoom.ScreenFormat.GRAY8)
    return game


def _presses(num_buttons: int, max_buttons: int) -> list[list[float]]:
    """List the buttons of each action as ones."""
    pressed = [
        buttons for count in range(max_buttons + 1) for buttons in itertools.combinations(range(num_buttons), count)
    ]
    return [[float(button in buttons) for button in range(num_buttons)] for buttons in pressed]
