"""Shrinks images by averaging areas: each new pixel is the mean of the area of the old ones that it covers.

This is what OpenCV calls INTER_AREA and what the Atari literature uses; here without OpenCV, in two small products.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray


class AreaResize:
    """Resizes gray images from one shape to another.

    The pattern of weights along an axis repeats after `old / gcd(old, new)` pixels, so each axis is a product with one
    small matrix instead of a large sparse one.

    Args:
        old_shape: height and width of what comes.
        new_shape: height and width of what is wanted; not larger than the old ones.
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


def _weights(old: int, new: int) -> NDArray[np.float32]:
    """[new, old] shares of the old pixels in each new one."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.arange(old)
    begin = np.maximum(edges[:-1, None], pixels)
    end = np.minimum(edges[1:, None], pixels + 1)
    weights: NDArray[np.float32] = (np.maximum(end - begin, 0.0) * (new / old)).astype(np.float32)
    return weights
