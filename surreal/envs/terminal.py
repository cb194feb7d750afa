"""Environments drawn in a terminal: `TerminalView` around an environment, on a `Screen`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Self, SupportsFloat, TextIO

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from surreal.base.errors import EnvError

Pixels = NDArray[np.uint8]

#: The six levels of red, green and blue in a terminal with 256 colors, and the edges between them.
_LEVELS = np.array([0, 95, 135, 175, 215, 255])
_EDGES = (_LEVELS[:-1] + _LEVELS[1:]) / 2
#: From dark to bright, for terminals without colors.
_RAMP = np.array(list(" .:-=+*#%@"))
_RESET = "\x1b[0m"
#: Enter the alternate screen, without cursor and line wrapping; and leave it.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
#: Steps per second of an environment without `render_fps`.
_DEFAULT_FPS = 30.0


class Colors(Enum):
    """Colors of a terminal."""

    TRUE = "24 bit"
    MANY = "256"
    NONE = "none"


class Screen:
    """The whole terminal, with one image and a line of text below it; restored at the end.

    with Screen(sys.stdout, Colors.TRUE) as screen:
        screen.show(frame, "step 1")
        screen.say("episode 1 is over")       # printed after the screen is closed
    """

    def __init__(
        self, stream: TextIO, colors: Colors, size: Callable[[], os.terminal_size] = shutil.get_terminal_size
    ) -> None:
        self.title = ""  #: first part of the line below the image
        self._stream = stream
        self._colors = colors
        self._size = size
        self._said: list[str] = []
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self._stream.write(_ENTER)
        self._stream.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        self._stream.write(_LEAVE + "".join(f"{line}\n" for line in self._said))
        self._stream.flush()

    def show(self, picture: object, text: str) -> None:
        """Draw a picture, [height, width, 3] uint8 or text, and a line of text below it."""
        columns, lines = self._size()
        rows = max(lines - 1, 1)
        if isinstance(picture, str):
            drawn = picture.rstrip("\n").splitlines()[:rows]
        elif isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3:
            drawn = frame_lines(np.ascontiguousarray(picture, np.uint8), max(columns, 1), rows, self._colors)
        else:
            kind = f"an array {picture.shape}" if isinstance(picture, np.ndarray) else f"a {type(picture).__name__}"
            raise EnvError(f"the environment renders {kind}; a terminal shows [height, width, 3] images and text")
        below = "  ".join(part for part in (self.title, text) if part)[:columns]
        content = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in drawn)
        self._stream.write(f"{_HOME}{content}\x1b[0m{below}{_REST_OF_SCREEN}")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Print a line after the screen is closed."""
        self._said.append(text)


class TerminalView(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws each step, "rgb_array" or "ansi", on a terminal, at the pace of the environment's `render_fps`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        screen: Screen,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(env)
        self._screen = screen
        self._clock = clock
        self._sleep = sleep
        self._interval_s = 1.0 / float(env.metadata.get("render_fps") or _DEFAULT_FPS)
        self._due_s = -float("inf")
        self._episodes, self._steps = -1, 0
        self._return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        found = super().reset(seed=seed, options=options)
        self._episodes += 1
        self._steps, self._return = 0, 0.0
        self._draw()
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        found = super().step(action)
        self._steps += 1
        self._return += float(found[1])
        self._draw()
        return found

    def _draw(self) -> None:
        now = self._clock()
        if now < self._due_s:
            self._sleep(self._due_s - now)
        # A late step does not shorten the next ones.
        self._due_s = max(now, self._due_s) + self._interval_s
        picture = self.env.render()
        self._screen.show(picture, f"episode {self._episodes}  step {self._steps}  return {self._return:g}")


def open_screen(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> Screen:
    """Make the screen of this terminal, with the colors that it has; raises `EnvError` if it is not a terminal."""
    stream = sys.stdout if stream is None else stream
    kind = environ.get("TERM", "")
    if not stream.isatty() or kind in ("", "dumb"):
        found = f"TERM is {kind!r}" if stream.isatty() else "the output goes elsewhere"
        raise EnvError(f"--terminal draws on a terminal, but {found}; videos need no terminal: --record DIR")
    if environ.get("NO_COLOR"):
        return Screen(stream, Colors.NONE)
    is_true = environ.get("COLORTERM") in ("truecolor", "24bit") or kind.endswith("-direct")
    return Screen(stream, Colors.TRUE if is_true else Colors.MANY)


def choose_mode(make: Callable[[str], gymnasium.Env[Any, Any]], modes: Any) -> str:
    """Choose a render mode for a terminal: images, else text."""
    problem = f"it has the render modes {', '.join(map(str, modes)) or 'none'}"
    for mode in ("rgb_array", "ansi"):
        if mode in modes:
            env = make(mode)
            try:
                env.reset()
                env.render()
                return mode
            except Exception as error:  # from any library that draws
                problem = str(error)
            finally:
                env.close()
    raise EnvError(f"the environment cannot be drawn in a terminal: {problem}")


def frame_lines(frame: Pixels, columns: int, rows: int, colors: Colors) -> list[str]:
    """Draw an image [height, width, 3] uint8 as text, as large as possible with its proportions.

    Each character shows two pixels, one above the other, by the upper half block and two colors.
    """
    pixels = fit(frame, columns, 2 * rows)
    if colors is Colors.NONE:
        gray = pixels.reshape(-1, 2, *pixels.shape[1:]).mean(axis=(1, 3))
        return ["".join(line) for line in _RAMP[(gray * len(_RAMP) / 256).astype(int)]]
    return [_line(upper, lower, colors) for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)]


def fit(frame: Pixels, width: int, height: int) -> Pixels:
    """Scale an image to fit, and make its height even with a black row."""
    scale = min(width / frame.shape[1], height / frame.shape[0])
    size = max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale))
    method = Image.Resampling.BOX if scale < 1.0 else Image.Resampling.NEAREST
    pixels = np.asarray(Image.fromarray(frame).resize(size, method))
    return np.pad(pixels, ((0, len(pixels) % 2), (0, 0), (0, 0)))


def nearest_of_256(pixels: Pixels) -> NDArray[np.int64]:
    """Find the nearest of a terminal's 256 colors [...] for pixels [..., 3], in its cube or its grays."""
    steps = np.searchsorted(_EDGES, pixels)
    cube = _LEVELS[steps]
    shade = np.clip(np.rint((pixels.mean(-1) - 8) / 10), 0, 23)
    gray = np.repeat((8 + 10 * shade)[..., None], 3, axis=-1)
    is_gray = np.square(gray - pixels).sum(-1) < np.square(cube - pixels.astype(int)).sum(-1)
    index = 16 + steps @ np.array([36, 6, 1])
    found: NDArray[np.int64] = np.where(is_gray, 232 + shade, index).astype(np.int64)
    return found


def _line(upper: Pixels, lower: Pixels, colors: Colors) -> str:
    """Draw two rows of pixels; colors are set only where they change."""
    if colors is Colors.MANY:
        tops, bottoms = ([f"5;{index}" for index in nearest_of_256(row)] for row in (upper, lower))
    else:
        tops, bottoms = ([f"2;{r};{g};{b}" for r, g, b in row] for row in (upper, lower))
    parts, top, bottom = [], "", ""
    for new_top, new_bottom in zip(tops, bottoms, strict=True):
        if new_top != top:
            parts.append(f"\x1b[38;{new_top}m")
        if new_bottom != bottom:
            parts.append(f"\x1b[48;{new_bottom}m")
        parts.append("▀")
        top, bottom = new_top, new_bottom
    return "".join(parts) + _RESET
