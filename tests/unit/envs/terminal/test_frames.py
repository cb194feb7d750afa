"""Images as text: what a terminal would show is the image again."""

from __future__ import annotations

import re

import numpy as np
import pytest

from surreal.envs.terminal import Colors, fit, frame_lines, nearest_of_256

CELL = re.compile(r"((?:\x1b\[[\d;]+m)*)(▀)")


def color_of_256(index: int) -> tuple[int, ...]:
    if index >= 232:
        return (8 + 10 * (index - 232),) * 3
    index -= 16
    return tuple((0, 95, 135, 175, 215, 255)[index // step % 6] for step in (36, 6, 1))


def read_back(lines: list[str]) -> np.ndarray:
    """Do what a terminal does with colours and blocks."""
    rows = []
    for line in lines:
        upper, lower, colors = [], [], {}
        for escapes, _ in CELL.findall(line):
            for plane, kind, rest in re.findall(r"\x1b\[(38|48);(2|5);([\d;]+)m", escapes):
                numbers = [int(number) for number in rest.split(";")]
                colors[plane] = tuple(numbers) if kind == "2" else color_of_256(numbers[0])
            upper.append(colors["38"])
            lower.append(colors["48"])
        rows += [upper, lower]
    return np.array(rows, np.uint8)


def test_what_is_drawn_is_the_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    lines = frame_lines(image, 9, 4, Colors.TRUE)
    assert len(lines) == 4
    drawn = read_back(lines)
    np.testing.assert_array_equal(drawn[:7], image)
    assert not drawn[7].any()  # the odd row's other half


def test_of_256_colors_the_nearest_is_taken() -> None:
    image = np.random.default_rng(0).integers(0, 256, (8, 40, 3), dtype=np.uint8)
    image[0, :26] = np.linspace(0, 255, 26, dtype=np.uint8)[:, None]
    drawn = read_back(frame_lines(image, 40, 4, Colors.MANY)).astype(int)
    every = np.array([color_of_256(index) for index in range(16, 256)])
    distances = np.square(image.reshape(-1, 1, 3).astype(int) - every).sum(-1)
    found = np.square(drawn - image).sum(-1).ravel()
    # The gray is chosen by brightness alone, so that of a colourful pixel may not be the nearest gray; rarely matters.
    assert (found <= distances.min(1) * 1.5 + 30).all()
    assert nearest_of_256(np.array([[[255, 0, 0], [128, 128, 128]]], np.uint8)).tolist() == [[196, 244]]


def test_a_color_is_named_only_where_it_changes() -> None:
    (line,) = frame_lines(np.full((2, 50, 3), 7, np.uint8), 50, 1, Colors.TRUE)
    assert line == "\x1b[38;2;7;7;7m\x1b[48;2;7;7;7m" + "▀" * 50 + "\x1b[0m"


def test_without_colors_brightness_is_a_character() -> None:
    image = np.repeat(np.array([0, 128, 255], np.uint8)[None, :, None], 3, axis=2).repeat(2, axis=0)
    assert frame_lines(image, 3, 1, Colors.NONE) == [" +@"]


@pytest.mark.parametrize(
    ("shape", "space", "wanted"),
    [
        ((400, 600, 3), (80, 46), (46, 69, 3)),  # as high as the terminal
        ((100, 600, 3), (60, 46), (10, 60, 3)),  # as wide
        ((2, 3, 3), (60, 46), (40, 60, 3)),  # enlarged
        ((1000, 3, 3), (60, 46), (46, 1, 3)),  # a line at least
    ],
)
def test_proportions_are_kept(shape: tuple[int, ...], space: tuple[int, int], wanted: tuple[int, ...]) -> None:
    assert fit(np.zeros(shape, np.uint8), *space).shape == wanted
