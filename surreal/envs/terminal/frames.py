"""Images as text: each character is two pixels, one above the other, by the upper half block and two colours."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

#: The six levels of red, green and blue in a terminal of 256 colours, and where one is nearer than the next.
_LEVELS = np.array([0, 95, 135, 175, 215, 255])
_EDGES = (_LEVELS[:-1] + _LEVELS[1:]) / 2
#: From dark to bright, for terminals without colours.
_RAMP = np.array(list(" .:-=+*#%@"))
_RESET = "\x1b[0m"


class Colors(Enum):
    """What a terminal can show."""

    TRUE = "24 bit"
    MANY = "256"
    NONE = "none"


def frame_lines(frame: Pixels, columns: int, rows: int, colors: Colors) -> list[str]:
    """Draw an image as large as it fits, with its proportions.

    Args:
        frame: [height, width, 3] uint8.
        columns: of the terminal, >= 1.
        rows: lines to fill at most, >= 1.
        colors: what it can show.
    """
    pixels = fit(frame, columns, 2 * rows)
    if colors is Colors.NONE:
        gray = pixels.reshape(-1, 2, *pixels.shape[1:]).mean(axis=(1, 3))
        return ["".join(line) for line in _RAMP[(gray * len(_RAMP) / 256).astype(int)]]
    return [_line(upper, lower, colors) for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)]


def fit(frame: Pixels, width: int, height: int) -> Pixels:
    """Scale an image into a space, and make its height even by a black row."""
    scale = min(width / frame.shape[1], height / frame.shape[0])
    size = max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale))
    method = Image.Resampling.BOX if scale < 1.0 else Image.Resampling.NEAREST
    pixels = np.asarray(Image.fromarray(frame).resize(size, method))
    return np.pad(pixels, ((0, len(pixels) % 2), (0, 0), (0, 0)))


def nearest_of_256(pixels: Pixels) -> NDArray[np.int64]:
    """Find the colours [...] of a terminal's 256 that are nearest to pixels [..., 3]: of its cube, or of its grays."""
    steps = np.searchsorted(_EDGES, pixels)
    cube = _LEVELS[steps]
    shade = np.clip(np.rint((pixels.mean(-1) - 8) / 10), 0, 23)
    gray = np.repeat((8 + 10 * shade)[..., None], 3, axis=-1)
    is_gray = np.square(gray - pixels).sum(-1) < np.square(cube - pixels.astype(int)).sum(-1)
    index = 16 + steps @ np.array([36, 6, 1])
    found: NDArray[np.int64] = np.where(is_gray, 232 + shade, index).astype(np.int64)
    return found


def _line(upper: Pixels, lower: Pixels, colors: Colors) -> str:
    """Draw two rows of pixels; a colour is named where it changes."""
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
